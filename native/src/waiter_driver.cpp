// The driver library: loading it, and making its errors readable.

#include <dlfcn.h>

#include <string>

#include "error.h"
#include "waiter.h"

namespace ts::waiter {

Driver::~Driver() {
  if (library_ != nullptr) dlclose(library_);
}

int32_t Driver::load(const std::string &library) {
  // The driver has threads and exit handlers of its own: it may be let go of, but stays mapped.
  library_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library_ == nullptr)
    return fail(TS_ERR_ARGUMENT, std::string("the CUDA driver cannot be loaded: ") + dlerror());
  const bool complete = find("cuInit", init_) && find("cuDeviceGet", device_get_) &&
                        find("cuDevicePrimaryCtxRetain", context_retain_) &&
                        find("cuDevicePrimaryCtxRelease_v2", context_release_) &&
                        find("cuCtxSetCurrent", context_set_current_) &&
                        find("cuEventSynchronize", event_synchronize_) &&
                        find("cuGetErrorName", error_name_) &&
                        find("cuGetErrorString", error_string_);
  if (complete) return TS_OK;
  return fail(TS_ERR_ARGUMENT, library + " is no CUDA driver: " + dlerror());
}

template <typename Function>
bool Driver::find(const char *name, Function &out) {
  out = reinterpret_cast<Function>(dlsym(library_, name));
  return out != nullptr;
}

std::string Driver::enter(int32_t device) {
  const auto failed = [&](const char *call, Result result) {
    return std::string(call) + " for device " + std::to_string(device) + ": " + explain(result);
  };
  Context context = nullptr;
  if (const Result result = init_(0); result != 0) return failed("cuInit", result);
  if (const Result result = device_get_(&device_, device); result != 0)
    return failed("cuDeviceGet", result);
  if (const Result result = context_retain_(&context, device_); result != 0)
    return failed("cuDevicePrimaryCtxRetain", result);
  retained_ = true;
  if (const Result result = context_set_current_(context); result != 0)
    return failed("cuCtxSetCurrent", result);
  return {};
}

void Driver::leave() {
  if (!retained_) return;
  context_set_current_(nullptr);
  context_release_(device_);
  retained_ = false;
}

std::string Driver::explain(Result result) const {
  const char *name = nullptr;
  const char *meaning = nullptr;
  if (error_name_(result, &name) != 0 || name == nullptr)
    return "CUDA error " + std::to_string(result);
  if (error_string_(result, &meaning) != 0 || meaning == nullptr) return name;
  return std::string(name) + ": " + meaning;
}

}  // namespace ts::waiter
