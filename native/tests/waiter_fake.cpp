// A CUDA driver that obeys a test: events come on command, each function can be made to fail.
//
// Built as a shared library and loaded by name, as the real one is; a test reaches fake_* through
// dlsym. An event is any number; nobody has to create one. With FAKE_WITHOUT_EVENTS it lacks
// cuEventSynchronize, as no real driver does.

#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace {

struct World {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<uint64_t, int> come;  // events and their results
  std::map<std::string, int> failing;
  int contexts = 0;  // retained and not released
  int waiting = 0;   // threads inside cuEventSynchronize
};

World &world() {
  static World world;
  return world;
}

thread_local void *current = nullptr;

int result_of(const char *function) {
  const std::lock_guard lock(world().mutex);
  const auto found = world().failing.find(function);
  return found == world().failing.end() ? 0 : found->second;
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int cuInit(unsigned) { return result_of("cuInit"); }

EXPORT int cuDeviceGet(int *device, int ordinal) {
  if (ordinal > 1) return 101;
  *device = ordinal;
  return result_of("cuDeviceGet");
}

EXPORT int cuDevicePrimaryCtxRetain(void **context, int) {
  if (const int result = result_of("cuDevicePrimaryCtxRetain"); result != 0) return result;
  const std::lock_guard lock(world().mutex);
  ++world().contexts;
  *context = &world();
  return 0;
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int) {
  const std::lock_guard lock(world().mutex);
  --world().contexts;
  return 0;
}

EXPORT int cuCtxSetCurrent(void *context) {
  current = context;
  return result_of("cuCtxSetCurrent");
}

#ifndef FAKE_WITHOUT_EVENTS
EXPORT int cuEventSynchronize(void *event) {
  if (current == nullptr) return 201;
  std::unique_lock lock(world().mutex);
  const auto number = reinterpret_cast<uint64_t>(event);
  ++world().waiting;
  world().changed.notify_all();
  world().changed.wait(lock, [&] { return world().come.contains(number); });
  --world().waiting;
  return world().come.at(number);
}
#endif

EXPORT int cuGetErrorName(int result, const char **text) {
  const std::map<int, const char *> names = {{101, "CUDA_ERROR_INVALID_DEVICE"},
                                             {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}};
  const auto found = names.find(result);
  *text = found == names.end() ? nullptr : found->second;
  return found == names.end() ? 1 : 0;
}

EXPORT int cuGetErrorString(int result, const char **text) {
  *text = "an illegal memory access was encountered";
  return result == 700 ? 0 : 1;
}

EXPORT void fake_complete(uint64_t event, int result) {
  const std::lock_guard lock(world().mutex);
  world().come[event] = result;
  world().changed.notify_all();
}

EXPORT void fake_fail(const char *function, int result) {
  const std::lock_guard lock(world().mutex);
  world().failing[function] = result;
}

// Returns once a thread waits for an event.
EXPORT void fake_until_waiting() {
  std::unique_lock lock(world().mutex);
  world().changed.wait(lock, [] { return world().waiting > 0; });
}

EXPORT int fake_contexts() {
  const std::lock_guard lock(world().mutex);
  return world().contexts;
}
