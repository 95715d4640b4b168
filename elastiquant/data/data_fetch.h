// Downloads the official archives of data sets, with the programs curl and tar.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "elastiquant/base/status.h"

namespace elastiquant {

struct FetchFile {
  std::string name;  // its name in the folder below, and of the local copy
  std::string md5;   // as published, 32 lower-case hexadecimal digits
  bool archive;      // whether it is a .tar.gz whose one folder's files are wanted
};

struct FetchSource {
  std::string name;    // "cifar10"
  std::string format;  // DatasetInfo::format of what is fetched
  std::string folder;  // the URL that the files' names are put after, ending in "/"
  std::vector<FetchFile> files;
};

// Returns the source of "cifar10", "cifar100" or "mnist". Fails with InvalidArgument, which
// lists the names known.
Result<FetchSource> FindFetchSource(std::string_view name);

// Brings a data set into `directory`, making it if need be, so that OpenDataset takes it. What
// is there already is not fetched again; a download that broke off is resumed at the next call.
// A file whose checksum is wrong is removed and never unpacked. Fails with NotFound if curl or
// tar is not installed, with IoError and curl's reason if the file cannot be downloaded, and
// with CorruptData if a checksum is wrong (both are given).
Status FetchDataset(const FetchSource& source, const std::filesystem::path& directory);

// Returns a folder for FetchSource::folder from what a user gives: a URL, or a folder of this
// machine.
std::string FolderUrl(const std::string& given);

}  // namespace elastiquant
