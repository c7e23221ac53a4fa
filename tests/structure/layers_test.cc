// Reads every include of src/, bench/ and apps/ against docs/layers.txt, and holds the size ratchet.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
const fs::path kRoot = HEADWATER_SOURCE_DIR;
constexpr int kLinesMax = 600;

std::map<std::string, std::set<std::string>> read_layers(std::istream& in) {
  std::map<std::string, std::set<std::string>> layers;
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(':');
    if (line.empty() || line[0] == '#' || colon == std::string::npos) continue;
    std::istringstream rest(line.substr(colon + 1));
    std::set<std::string>& allowed = layers[line.substr(0, colon)];
    for (std::string room; rest >> room;) allowed.insert(room);
  }
  return layers;
}

// "kv/paged_cache.h" -> "kv"; "backend/cpu/x.h" -> "backend/cpu"; "server/x.h" -> "server".
std::string room_of(const std::string& path) {
  const size_t slash = path.find('/');
  if (slash == std::string::npos) return "";
  const std::string first = path.substr(0, slash);
  if (first != "backend" && first != "server") return first;
  const size_t second = path.find('/', slash + 1);
  return second == std::string::npos ? first : path.substr(0, second);
}

struct SourceFile {
  std::string name;  // relative to the root of the includes
  std::string text;
};

std::vector<SourceFile> sources() {
  std::vector<SourceFile> files;
  for (const auto& [folder, base] : {std::pair{"src", "src"}, {"apps", "."}, {"bench", "."}}) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      const std::string extension = entry.path().extension();
      if (extension != ".h" && extension != ".cc" && extension != ".cu" && extension != ".cuh") continue;
      std::ifstream in(entry.path());
      std::ostringstream text;
      text << in.rdbuf();
      files.push_back({fs::relative(entry.path(), kRoot / base).generic_string(), text.str()});
    }
  }
  return files;
}

bool is_test(const std::string& name) {
  for (const char* part : {"_test.cc", "_test_kit.h", "_fuzz.cc", "_bench.cc"}) {
    if (name.find(part) != std::string::npos) return true;
  }
  return false;
}

// Includes of `file` that its room may not make, as "file: include".
std::vector<std::string> broken_edges(const SourceFile& file,
                                      const std::map<std::string, std::set<std::string>>& layers) {
  std::vector<std::string> broken;
  const std::string room = room_of(file.name);
  std::istringstream in(file.text);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("#include \"", 0) != 0) continue;
    const std::string include = line.substr(10, line.find('"', 10) - 10);
    const std::string target = room_of(include);
    if (target == room || (is_test(file.name) && target == "support")) continue;
    const auto allowed = layers.find(room);
    if (allowed == layers.end() || !allowed->second.contains(target)) broken.push_back(file.name + ": " + include);
  }
  return broken;
}

TEST(Layers, EveryIncludePointsDown) {
  std::ifstream in(kRoot / "docs/layers.txt");
  const auto layers = read_layers(in);
  ASSERT_GE(layers.size(), 12u);
  const auto files = sources();
  ASSERT_GT(files.size(), 50u);
  for (const SourceFile& file : files) {
    for (const std::string& edge : broken_edges(file, layers))
      ADD_FAILURE() << "not allowed by docs/layers.txt: " << edge;
  }
}

TEST(Layers, SourcesOfEveryKindAreRead) {
  std::set<std::string> extensions;
  for (const SourceFile& file : sources()) extensions.insert(fs::path(file.name).extension());
  EXPECT_EQ(extensions, (std::set<std::string>{".cc", ".cu", ".cuh", ".h"}));
}

TEST(Layers, AnUpwardIncludeIsCaught) {
  std::istringstream text("core:\nkv: core\n");
  const auto layers = read_layers(text);
  EXPECT_TRUE(broken_edges({"kv/pool.h", "#include \"core/core.h\"\n#include \"kv/page.h\"\n"}, layers).empty());
  EXPECT_EQ(broken_edges({"core/ids.h", "#include \"kv/page.h\"\n"}, layers).size(), 1u);
  EXPECT_EQ(broken_edges({"unknown/x.h", "#include \"core/core.h\"\n"}, layers).size(), 1u);
}

bool reaches(const std::map<std::string, std::set<std::string>>& layers, const std::string& from,
             const std::string& to) {
  std::vector<std::string> open{from};
  std::set<std::string> seen;
  while (!open.empty()) {
    const std::string room = open.back();
    open.pop_back();
    if (room == to) return true;
    if (!seen.insert(room).second || !layers.contains(room)) continue;
    open.insert(open.end(), layers.at(room).begin(), layers.at(room).end());
  }
  return false;
}

TEST(Layers, TheAllowedEdgesHaveNoCycle) {
  std::ifstream in(kRoot / "docs/layers.txt");
  const auto layers = read_layers(in);
  for (const auto& [room, allowed] : layers) {
    for (const std::string& below : allowed) {
      ASSERT_TRUE(layers.contains(below)) << room << " names the unknown room " << below;
      EXPECT_FALSE(reaches(layers, below, room)) << room << " and " << below << " may reach each other";
    }
  }
}

TEST(Size, NoFileGrowsBeyondTheRatchet) {
  for (const SourceFile& file : sources()) {
    EXPECT_LE(std::count(file.text.begin(), file.text.end(), '\n'), kLinesMax) << file.name << " is too long; split it";
  }
}

}  // namespace
