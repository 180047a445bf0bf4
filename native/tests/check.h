// The whole test framework: a test is a plain executable made of TEST blocks.
//
//   TEST(wraps_around) { CHECK_EQ(tail % 16, 0U); }
//   CHECK_MAIN()
//
// Without arguments the executable runs every test in the order of the file; with arguments, the
// tests named. The first failed check prints where and what, and ends the process with status 1.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace check {

struct Test {
  std::string_view name;
  void (*run)();
};

inline std::vector<Test> &all() {
  static std::vector<Test> tests;
  return tests;
}

struct Registration {
  Registration(std::string_view name, void (*run)()) { all().push_back({name, run}); }
};

[[noreturn]] inline void failed(const char *file, int line, const std::string &what) {
  std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
  std::fflush(stderr);
  std::_Exit(1);
}

template <typename Left, typename Right>
std::string both(const char *expression, const Left &left, const Right &right) {
  std::ostringstream text;
  text << expression << " is " << left << ", expected " << right;
  return text.str();
}

inline bool wanted(std::string_view name, int argc, char **argv) {
  for (int i = 1; i < argc; ++i)
    if (name == argv[i]) return true;
  return argc == 1;
}

inline int main(int argc, char **argv) {
  size_t ran = 0;
  for (const Test &test : all()) {
    if (!wanted(test.name, argc, argv)) continue;
    std::cout << test.name << std::endl;
    test.run();
    ++ran;
  }
  std::cout << ran << " tests passed" << std::endl;
  return ran == 0 ? 1 : 0;
}

}  // namespace check

#define TEST(name)                                                          \
  static void test_##name();                                                \
  static const check::Registration registration_##name(#name, test_##name); \
  static void test_##name()

#define CHECK(condition)                                                         \
  do {                                                                           \
    if (!(condition)) check::failed(__FILE__, __LINE__, #condition " is false"); \
  } while (false)

#define CHECK_EQ(left, right)                                                         \
  do {                                                                                \
    const auto check_left = (left);                                                   \
    const auto check_right = (right);                                                 \
    if (!(check_left == check_right))                                                 \
      check::failed(__FILE__, __LINE__, check::both(#left, check_left, check_right)); \
  } while (false)

#define CHECK_MAIN() \
  int main(int argc, char **argv) { return check::main(argc, argv); }
