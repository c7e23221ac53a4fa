// A server of this program (or of another build of it) as a child that does not outlive the bench.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "core/core.h"

namespace headwater::bench::serve {

class ServerProcess {
 public:
  // Runs `program serve --host 127.0.0.1 --port 0 arguments...` and waits until it says where it listens and /health
  // answers 200. Errors: kNotFound when it ends or says nothing in time. Linux only (PR_SET_PDEATHSIG).
  static Result<std::unique_ptr<ServerProcess>> start(const std::string& program,
                                                      const std::vector<std::string>& arguments);
  ~ServerProcess();  // SIGTERM; SIGKILL when that does not end it within kStopSeconds
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  const std::string& url() const { return url_; }
  bool running();

  static constexpr int kStartSeconds = 120, kStopSeconds = 10;

 private:
  ServerProcess(pid_t process, int output) : process_(process), output_(output) {}
  Status wait_until_listening();
  Status wait_until_healthy();

  pid_t process_;
  int output_;  // its standard output
  bool reaped_ = false;
  std::string url_;
};

}  // namespace headwater::bench::serve
