// `data`: bringing and looking at data sets.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "elastiquant/cli/command.h"
#include "elastiquant/data/data_fetch.h"
#include "elastiquant/data/dataset.h"

namespace elastiquant::cli {
namespace {

struct FetchOptions {
  std::string name;       // fetch: which
  std::string directory;  // fetch and info
  std::string from;       // fetch: in place of the official folder
};

Status PrintInfo(const std::string& source) {
  EQ_ASSIGN_OR_RETURN(const auto dataset, OpenDataset(source, {}));
  const DatasetInfo& info = dataset->info();
  fmt::print("{}: format {}, {} training and {} test images of {}x{}x{}, {} classes\n",
             info.name, info.format, info.train_size, info.test_size, info.image_size,
             info.image_size, info.channels, info.classes);
  return Status::Ok();
}

Status Fetch(const FetchOptions& options) {
  EQ_ASSIGN_OR_RETURN(FetchSource source, FindFetchSource(options.name));
  if (!options.from.empty()) source.folder = FolderUrl(options.from);
  EQ_RETURN_IF_ERROR(FetchDataset(source, options.directory));
  return PrintInfo(options.directory);
}

constexpr char kDataExample[] =
    "  elastiquant data fetch cifar10 data/cifar10\n"
    "  elastiquant data info data/cifar10\n"
    "  elastiquant train --data data/cifar10 --out runs/first";
constexpr char kFetchExample[] =
    "  elastiquant data fetch cifar10 data/cifar10\n"
    "  elastiquant data fetch mnist data/mnist --from ~/Downloads\n"
    "Needs the programs curl and tar. A download that broke off is resumed.";
constexpr char kInfoExample[] = "  elastiquant data info data/cifar10";

}  // namespace

Command MakeDataCommand(CLI::App& program) {
  auto options = std::make_shared<FetchOptions>();
  CLI::App* app = AddSubcommand(program, "data",
                                "Download data sets, or say what a folder holds", kDataExample);
  app->require_subcommand(1);
  CLI::App* fetch = AddSubcommand(
      *app, "fetch", "Download and verify a data set's official archive", kFetchExample);
  fetch->add_option("NAME", options->name, "cifar10, cifar100 or mnist")->required();
  fetch->add_option("DIR", options->directory, "Folder to put it in; made if it is not there")
      ->required();
  fetch->add_option("--from", options->from,
                    "Folder or URL that has the archives, in place of the official one");
  CLI::App* info =
      AddSubcommand(*app, "info", "Say which data set a folder holds", kInfoExample);
  info->add_option("DIR", options->directory, "Folder, or \"generated\"")->required();
  return {app, [options, fetch] {
            return fetch->parsed() ? Fetch(*options) : PrintInfo(options->directory);
          }};
}

}  // namespace elastiquant::cli
