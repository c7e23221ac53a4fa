// Answers one request for text: submits its prompts, follows their tokens, writes events or one JSON object.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "server/engine_service.h"
#include "server/error_response.h"
#include "server/http/http.h"
#include "server/metrics_page.h"
#include "server/openai/choice.h"
#include "server/openai/decode.h"
#include "server/openai/encode.h"
#include "server/wakeup.h"

namespace headwater::server {

class Answer {
 public:
  // All outlive it. request_id: shown to the client, and the tail of the answer's id.
  Answer(const openai::ServedModel& model, EngineService& service, ServerMetrics& metrics, http::Exchange& exchange,
         openai::Generation generation, std::string request_id, const boost::asio::any_io_executor& executor);
  ~Answer();  // gives up what is still running
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;

  // keep_alive: a comment goes out when nothing else did for this long. Returns the status for the access log;
  // kClientGone: the client went away first.
  boost::asio::awaitable<unsigned> run(std::chrono::milliseconds keep_alive);

 private:
  struct Part {  // one prompt
    engine::RequestId request = 0;
    bool open = false;
    size_t choice_first = 0;
  };
  struct Piece {  // one choice
    openai::Choice choice;
    bool begun = false;  // its first event is out
  };

  std::optional<openai::ApiError> never_fits() const;
  std::optional<openai::ApiError> submit();
  bool collect();  // takes what the engine has; false: a choice failed
  bool collect(Part& part);
  void take(size_t index, const engine::Emission& emission, Part& part);
  void add_event(size_t index, openai::Delta& delta);
  void abandon();
  bool running() const;
  openai::Usage usage() const;
  boost::asio::awaitable<unsigned> stream(std::chrono::milliseconds keep_alive);
  boost::asio::awaitable<unsigned> whole();
  boost::asio::awaitable<bool> flush();

  const openai::ServedModel& model_;
  EngineService& service_;
  ServerMetrics& metrics_;
  http::Exchange& exchange_;
  openai::Generation generation_;
  std::string request_id_;
  openai::AnswerHead head_;
  Wakeup wakeup_;
  SystemClock clock_;
  std::vector<Part> parts_;
  std::vector<Piece> pieces_;
  std::vector<openai::Delta> deltas_;  // [pieces] not streaming: everything so far
  std::string events_;                 // streaming: not written yet
  int64_t token_ns_ = 0;               // when the oldest token in events_ was made; 0: none
};

}  // namespace headwater::server
