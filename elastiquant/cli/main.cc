#include "elastiquant/cli/program.h"

int main(int argc, char** argv) {
  using namespace elastiquant::cli;
  LeaveProcess(RunProgram(argc, argv));
}
