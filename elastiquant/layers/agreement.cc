#include "elastiquant/layers/agreement.h"

#include <algorithm>
#include <vector>

namespace elastiquant {

Status Agreement::Agree(const Status& mine) {
  EQ_ASSIGN_OR_RETURN(const std::vector<uint64_t> codes,
                      comm_->AllGather(static_cast<uint64_t>(mine.code())));
  const auto first = std::ranges::find_if(codes, [](uint64_t code) { return code != 0; });
  if (first == codes.end()) return Status::Ok();
  on_error_ = true;
  const bool first_is_mine = first - codes.begin() == comm_->rank();
  const auto code = static_cast<StatusCode>(*first);
  if (!mine.ok() && (first_is_mine || mine.code() != code)) return mine;
  return {code, ""};
}

Status Agreement::Known(const Status& status) {
  on_error_ = true;
  return comm_->rank() == 0 ? status : Status(status.code(), "");
}

Result<std::string> ShareText(Communicator& comm, std::string text) {
  EQ_ASSIGN_OR_RETURN(const std::vector<uint64_t> sizes, comm.AllGather(text.size()));
  text.resize(sizes[0]);
  if (!text.empty()) {
    EQ_RETURN_IF_ERROR(
        comm.Broadcast(0, {reinterpret_cast<uint8_t*>(text.data()), text.size()}));
  }
  return text;
}

}  // namespace elastiquant
