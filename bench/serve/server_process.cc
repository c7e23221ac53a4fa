#include "bench/serve/server_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "bench/serve/client.h"

namespace headwater::bench::serve {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr std::string_view kListening = "listening on ";

// In the child: nothing that allocates.
[[noreturn]] void become(const char* program, char* const* arguments, int output, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it ended before the signal was asked for
  dup2(output, STDOUT_FILENO);
  execv(program, arguments);
  _exit(127);
}

}  // namespace

Result<std::unique_ptr<ServerProcess>> ServerProcess::start(const std::string& program,
                                                            const std::vector<std::string>& arguments) {
  std::vector<std::string> words{program, "serve", "--host", "127.0.0.1", "--port", "0"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return error(ErrorCode::kExhausted, "no pipe for {}'s output", program);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) become(program.c_str(), argv.data(), ends[1], parent);
  close(ends[1]);
  if (child < 0) {
    close(ends[0]);
    return error(ErrorCode::kExhausted, "{} cannot be started: no process", program);
  }
  std::unique_ptr<ServerProcess> server(new ServerProcess(child, ends[0]));
  HEADWATER_RETURN_IF_ERROR(server->wait_until_listening());
  HEADWATER_RETURN_IF_ERROR(server->wait_until_healthy());
  return server;
}

Status ServerProcess::wait_until_listening() {
  const auto deadline = SteadyClock::now() + std::chrono::seconds(kStartSeconds);
  std::string line;
  while (line.find('\n') == std::string::npos) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - SteadyClock::now()).count();
    pollfd ready{output_, POLLIN, 0};
    if (left <= 0 || poll(&ready, 1, static_cast<int>(left)) <= 0) {
      return error(ErrorCode::kNotFound, "the server printed no '{}URL' within {} s", kListening, kStartSeconds);
    }
    char bytes[256];
    const ssize_t count = read(output_, bytes, sizeof(bytes));
    if (count <= 0) return error(ErrorCode::kNotFound, "the server ended before it was ready; it says why above");
    line.append(bytes, static_cast<size_t>(count));
  }
  line.resize(line.find('\n'));
  if (line.rfind(kListening, 0) != 0) {
    return error(ErrorCode::kNotFound, "the server printed '{}' where '{}URL' is expected", line, kListening);
  }
  url_ = line.substr(kListening.size());
  return {};
}

Status ServerProcess::wait_until_healthy() {
  HEADWATER_ASSIGN_OR_RETURN(const Target target, Target::of_url(url_, ""));
  for (const auto deadline = SteadyClock::now() + std::chrono::seconds(kStartSeconds); SteadyClock::now() < deadline;) {
    if (!running()) return error(ErrorCode::kNotFound, "the server ended while it loaded; it says why above");
    const auto health = fetch(target, "/health", std::chrono::seconds(5));
    if (health && health->status == 200) return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return error(ErrorCode::kNotFound, "{}/health did not answer 200 within {} s", url_, kStartSeconds);
}

bool ServerProcess::running() {
  if (!reaped_) reaped_ = waitpid(process_, nullptr, WNOHANG) == process_;
  return !reaped_;
}

ServerProcess::~ServerProcess() {
  if (running()) kill(process_, SIGTERM);
  const auto deadline = SteadyClock::now() + std::chrono::seconds(kStopSeconds);
  while (running() && SteadyClock::now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  if (running()) {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  close(output_);
}

}  // namespace headwater::bench::serve
