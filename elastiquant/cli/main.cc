#include "elastiquant/base/standard_streams.h"
#include "elastiquant/cli/program.h"

int main(int argc, char** argv) {
  using namespace elastiquant::cli;
  elastiquant::OpenClosedStreams();
  LeaveProcess(RunProgram(argc, argv));
}
