// What is done about model files when a signal ends the process. The commands install it (main.cc); another program that
// uses these rooms decides for itself.
//
//   SIGBUS                          a mapped file was shortened, or its disk fails: one line names it, exit code 1
//   SIGHUP, SIGINT, SIGTERM, ...    a file in the making (output_file.h) is removed, then the signal does its work
#pragma once

#include <string>

namespace headwater::model {

void explain_lost_pages();
void remove_unfinished_file_on_signals();

// The file that is to be removed; "" for none. One at a time.
void set_unfinished_file(const std::string& path);

}  // namespace headwater::model
