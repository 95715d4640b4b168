#include "elastiquant/data/data_fetch.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "elastiquant/data/dataset.h"
#include "elastiquant/data/md5.h"

extern char** environ;

namespace elastiquant {
namespace {

namespace fs = std::filesystem;

// Runs a program without a shell and returns its exit code, or 128 + the signal that ended it.
Result<int> Run(const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int error =
      posix_spawnp(&child, arguments[0], nullptr, nullptr, arguments.data(), environ);
  if (error == ENOENT) {
    return NotFound("the program " + words[0] +
                    " is not installed; install it (Debian: apt-get "
                    "install " +
                    words[0] + ")");
  }
  if (error != 0) return IoError("cannot start " + words[0] + ": " + std::strerror(error));
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return IoError(std::string("cannot wait: ") + std::strerror(errno));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// What curl's exit code means to somebody who wants the file (curl(1), EXIT CODES).
std::string CurlReason(int code) {
  switch (code) {
    case 5:
    case 6:
      return "the host name cannot be resolved (no internet connection?)";
    case 7:
      return "the host does not accept connections (no internet connection?)";
    case 22:
      return "the server refused (HTTP error)";
    case 23:
      return "the file cannot be written (disk full?)";
    case 28:
      return "the connection timed out";
    case 37:
      return "there is no such local file";
    default:
      return "curl ended with code " + std::to_string(code);
  }
}

bool HasChecksum(const fs::path& path, const std::string& md5) {
  const auto found = Md5OfFile(path);
  return found.ok() && *found == md5;
}

Status Download(const std::string& url, const fs::path& target) {
  std::vector<std::string> words = {
      "curl", "--fail",        "--location", "--retry", "3", "--connect-timeout",
      "30",   "--continue-at", "-"};
  if (isatty(STDERR_FILENO)) {
    words.push_back("--progress-bar");
  } else {
    words.insert(words.end(), {"--silent", "--show-error"});
  }
  words.insert(words.end(), {"--output", target.string(), "--", url});
  EQ_ASSIGN_OR_RETURN(const int code, Run(words));
  if (code == 0) return Status::Ok();
  return IoError("cannot download " + url + ": " + CurlReason(code) +
                 "; run the command again to resume, or bring the file from elsewhere and give "
                 "its folder with --from");
}

// The file arrives under another name, so that only a verified one ever has its own.
Status DownloadVerified(const std::string& folder, const FetchFile& file,
                        const fs::path& target) {
  if (HasChecksum(target, file.md5)) return Status::Ok();
  const fs::path part = target.string() + ".part";
  if (!HasChecksum(part, file.md5)) {
    EQ_RETURN_IF_ERROR(Download(folder + file.name, part));
    EQ_ASSIGN_OR_RETURN(const std::string md5, Md5OfFile(part));
    if (md5 != file.md5) {
      std::error_code ignored;
      const auto size = fs::file_size(part, ignored);
      fs::remove(part, ignored);
      return CorruptData(folder + file.name + " (" + std::to_string(size) + " bytes) has MD5 " +
                         md5 + ", expected " + file.md5 +
                         "; the download was removed, try again");
    }
  }
  std::error_code error;
  fs::rename(part, target, error);
  if (error) return IoError("cannot rename " + part.string() + ": " + error.message());
  return Status::Ok();
}

Status Unpack(const fs::path& archive, const fs::path& directory) {
  EQ_ASSIGN_OR_RETURN(const int code, Run({"tar", "--extract", "--gzip", "--no-same-owner",
                                           "--strip-components=1", "--file", archive.string(),
                                           "--directory", directory.string()}));
  if (code != 0) {
    return IoError("cannot unpack " + archive.string() + " into " + directory.string() +
                   ": tar ended with code " + std::to_string(code));
  }
  std::error_code error;
  fs::remove(archive, error);
  if (error) return IoError("cannot remove " + archive.string() + ": " + error.message());
  return Status::Ok();
}

// Ok only if the directory holds this very data set, complete.
Status CheckFetched(const FetchSource& source, const fs::path& directory) {
  EQ_ASSIGN_OR_RETURN(const auto dataset, OpenDataset(directory.string(), {}));
  if (dataset->info().format == source.format) return Status::Ok();
  return CorruptData(directory.string() + " holds a data set of format " +
                     dataset->info().format + ", not " + source.format +
                     "; choose another directory");
}

}  // namespace

Result<FetchSource> FindFetchSource(std::string_view name) {
  // The checksums are published beside the archives, those of MNIST with torchvision.
  static const std::vector<FetchSource> sources = {
      {"cifar10",
       "cifar10",
       "https://www.cs.toronto.edu/~kriz/",
       {{"cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", true}}},
      {"cifar100",
       "cifar100",
       "https://www.cs.toronto.edu/~kriz/",
       {{"cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", true}}},
      {"mnist",
       "idx",
       "https://ossci-datasets.s3.amazonaws.com/mnist/",
       {{"train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873", false},
        {"train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432", false},
        {"t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3", false},
        {"t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c", false}}},
  };
  for (const FetchSource& source : sources) {
    if (source.name == name) return source;
  }
  return InvalidArgument("unknown data set \"" + std::string(name) +
                         "\"; known are cifar10, cifar100, mnist");
}

Status FetchDataset(const FetchSource& source, const fs::path& directory) {
  std::error_code error;
  if (fs::is_directory(directory, error) && CheckFetched(source, directory).ok()) {
    return Status::Ok();
  }
  fs::create_directories(directory, error);
  if (error) return IoError("cannot make " + directory.string() + ": " + error.message());
  for (const FetchFile& file : source.files) {
    const fs::path target = directory / file.name;
    EQ_RETURN_IF_ERROR(DownloadVerified(source.folder, file, target));
    if (file.archive) EQ_RETURN_IF_ERROR(Unpack(target, directory));
  }
  return CheckFetched(source, directory);
}

std::string FolderUrl(const std::string& given) {
  std::string url =
      given.find("://") != std::string::npos ? given : "file://" + fs::absolute(given).string();
  if (!url.ends_with('/')) url += '/';
  return url;
}

}  // namespace elastiquant
