// Templates and messages that would take for ever, or all memory, or all of the stack: each ends in an error, soon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>

#include "text/chat_template.h"

namespace headwater::text {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

double thread_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

std::string repeat(std::string_view text, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += text;
  return out;
}

struct Hostile {
  std::string source;
  std::string_view message;  // part of the error's
};

std::vector<Hostile> hostile_templates() {
  constexpr std::string_view kSteps = "takes more than 500000 steps", kBytes = "builds more than 33554432 bytes";
  constexpr std::string_view kMore = "more than";  // the one or the other, at about the same time
  constexpr std::string_view kLevels = "levels deep";
  const std::string grow = "{% set ns = namespace(x='ab') %}{% for i in range(60) %}";
  return {
      {"{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", kLevels},
      {"{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{% if true %}{{ f() }}{% endif %}{% endmacro %}{{ f() }}",
       kLevels},
      {"{% macro f(n) %}{{ f(n)|upper|trim ~ [f(n), {'a': f(n)}] }}{% endmacro %}{{ f(0) }}", kLevels},
      {"{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(50) }}", kSteps},
      {"{{ range(10**9) }}", "more than 100000 numbers"},
      {repeat("{{ x }}", 149000), "more than 65536 words and signs"},
      {"{{ [" + repeat("1,", 500000) + "] }}", "more than 65536 words and signs"},
      {"{% set x = 3 ** 1000000000000 %}", "does not fit 64 bits"},
      {"{{ [0] * 1000000000000 }}", kBytes},
      {"{% set ns = namespace(x=[0]) %}{% for i in range(60) %}{% set ns.x = ns.x * 2 %}{% endfor %}", kMore},
      {"{% for i in range(1000000000) %}{% endfor %}", "more than 100000 numbers"},
      {"{% for a in range(1000) %}{% for b in range(1000) %}{{ a }}{% endfor %}{% endfor %}", kSteps},
      {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", kSteps},
      {"{% for a in range(99999) %}{% for b in 'ab' %}{% set x %}{{ a }}{% endset %}{% macro f() %}{% endmacro %}"
       "{% endfor %}{% endfor %}",
       kBytes},
      {"{{ 'x' * 1000000000000 }}", kBytes},
      {"{{ 'x' * 9223372036854775807 }}", kBytes},
      {"{{ ('x' * 60000000)|length }}", kMore},
      {"{% set x = 'x' * 600000 %}{% for i in range(30) %}{{ x }}{% endfor %}", "writes more than"},
      {grow + "{% set ns.x = ns.x + ns.x %}{% endfor %}", kMore},
      {grow + "{% set ns.x = ns.x ~ ns.x %}{% endfor %}", kMore},
      {grow + "{% set ns.x = ns.x|replace('a', ns.x) %}{% endfor %}", kMore},
      {grow + "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}", kSteps},
      {grow + "{% set ns.x = {'a': ns.x, 'b': ns.x} %}{% endfor %}{{ ns.x|tojson }}", kSteps},
      {grow + "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{% set y = ns.x %}" + grow +
           "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x == y }}",
       kSteps},
      {grow + "{% set ns.x = '%s%s' % (ns.x, ns.x) %}{% endfor %}", kMore},
      {grow + "{% set ns.x = '{}{}'.format(ns.x, ns.x) %}{% endfor %}", kMore},
      {grow + "{% set ns.x = [ns.x, ns.x]|join %}{% endfor %}", kMore},
      {grow + "{% set x %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = x %}{% endfor %}", kMore},
      {grow + "{% set ns.x = ns.x|tojson|tojson %}{% endfor %}", kSteps},
      {"{% set x = 'a' * 1000000 %}{% for i in range(1000) %}{{ x.find('b') }}{% endfor %}", kSteps},
      {"{% set x = 'a' * 1000000 %}{% for i in range(1000) %}{{ x|length }}{% endfor %}", kSteps},
      {"{% set x = 'a' * 1000000 %}{{ x.split('a')|length }}", kBytes},
      {"{% set x = ('a' * 9999 + 'b') * 99 %}{{ ('a' * 9999).join(x.split('b')).find('a' * 9998 + 'c') }}", kSteps},
      {"{% set x = 'a ' * 1000000 %}{{ x|upper|title|trim|list|length }}", kMore},
      {"{{ ('a' * 1000000)|indent(1000) }}{{ ('\\n' * 1000000)|indent(1000, true, true) }}", kMore},
      {"{{ '%1001s' % 'x' }}", "at most 1000"},
      {"{{ '%999999999999999999999d' % 1 }}", "at most 1000"},
      {"{{ '{:1001}'.format('x') }}", "at most 1000"},
      {"{% for i in range(99999) %}{% set x = '{:1000.1000f}'.format(1.7e308) %}{% endfor %}", kMore},
      {"{% for i in range(99999) %}{% set x = '{:.1000e}'.format(0.1) %}{% endfor %}", kMore},
      {"{% for i in range(99999) %}{% set x = '%.1000g' % 0.1 %}{% endfor %}", kMore},
      {"{% for i in range(99999) %}{% set x = '{:>1000}{:>1000}'.format('', '') %}{% endfor %}", kMore},
      {grow + "{% set ns.x = '{0}{0:>1000}'.format(ns.x) %}{% endfor %}", kMore},
      {grow + "{% set ns.x = '%(a)s%(a)s' % {'a': ns.x} %}{% endfor %}", kMore},
      {grow + "{% set ns.x = ns.x.replace('', ns.x) %}{% endfor %}", kMore},
      {"{% set x = 'a' * 99999 %}{% for i in range(999) %}{{ x.rpartition('b')|length }}{% endfor %}", kMore},
      {"{% set x = 'a' * 99999 %}{% for i in range(999) %}{{ x.isalpha() }}{% endfor %}", kSteps},
      {"{{ ('a\\n' * 1000000)|indent }}", kMore},
      {"{{ ([range(9999)|list, range(9999)|list] * 999)|sort|length }}", kSteps},
      {"{% set x = 'a' * 99999 %}{% for i in range(999) %}{{ x.rsplit('b')|length }}{% endfor %}", kSteps},
      {"{{ range(99999)|list|unique|list|length }}", kSteps},
      {"{% set ns = namespace(d={}) %}{% for i in range(9999) %}{% set ns.d = dict({i: ns.d}, a=1) %}{% endfor %}",
       "nest more than 64"},
      {"{% set ns = namespace(x=[]) %}{% for i in range(99) %}{% set ns.x = [ns.x] %}{% endfor %}",
       "nest more than 64"},
      {"{{ " + repeat("(", 10000) + "x" + repeat(")", 10000) + " }}", kLevels},
      {repeat("{% if x %}", 10000), kLevels},
      {repeat("{% for x in y %}", 10000), kLevels},
      {repeat("{% macro m() %}", 10000), kLevels},
      {repeat("{% set x %}", 10000), kLevels},
  };
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kMostMs = 5000;
#else
constexpr double kMostMs = 150;  // of the processor; about 16, and what other work on the core adds
#endif

TEST(ChatTemplateLimits, HostileTemplatesEndSoonWithAClearError) {
  const std::vector<Message> messages = {{"user", "hi"}};
  double slowest_ms = 0;
  for (const Hostile& hostile : hostile_templates()) {
    const double begin = thread_ms();
    const auto parsed = ChatTemplate::parse(hostile.source, "<s>", "</s>");
    const Status status = parsed ? parsed->render(messages, {}).status() : parsed.status();
    const double ms = thread_ms() - begin;
    EXPECT_FALSE(status.is_ok()) << hostile.source.substr(0, 200);
    EXPECT_THAT(status.message(), HasSubstr(hostile.message)) << hostile.source.substr(0, 200);
    if (status.code() == ErrorCode::kExhausted) {  // where, which limit, and what helps
      EXPECT_THAT(status.message(),
                  AllOf(HasSubstr("chat template, line "), HasSubstr(" more than "), HasSubstr("; ")));
    }
    EXPECT_LT(ms, kMostMs) << hostile.source.substr(0, 200);
    if (ms > slowest_ms) RecordProperty("slowest", hostile.source.substr(0, 200));
    slowest_ms = std::max(slowest_ms, ms);
  }
  RecordProperty("slowest_ms", std::to_string(slowest_ms));
}

}  // namespace
}  // namespace headwater::text
