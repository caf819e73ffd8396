/* A stand-in for libcuda.so.1, for tests: enough of it for the real cuda-bindings to bring up GPUs that do not exist.
   A context is the GPU's number and 1; the memory of a GPU is the host's. CUDA's own order is from the fastest GPU on:
   those with `slow_model.N` come last, unless CUDA_DEVICE_ORDER says PCI_BUS_ID. A GPU with `hidden.N` does not count,
   as where it failed, or where the MPS daemon (`mps`) has others. With `capture`, a thread of the user's captures a graph
   in the mode that restricts all threads. `reset.N` counts how often the user's program has reset the GPU's context. */
#include "settings.h"

typedef int Result;
enum { SUCCESS = 0, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600, CAPTURE_UNSUPPORTED = 900, RELAXED = 2, MPS_ENABLED = 133, MOST = 16 };

static int initialized, shown[MOST], shown_count;
static long allocated_at[MOST];
static _Thread_local long current[MOST];
static _Thread_local int depth, mode;

static int here(void) { return depth ? (int)current[depth - 1] - 1 : 0; }
static Result fate(void) { return (Result)setting(SUCCESS, "cuda.%d", here()); }
static long resets(void) { return setting(0, "reset.%d", here()); }
static int is_stale(long made_at, const char *function) {
    if (made_at == resets()) return 0;
    note_misuse(function);
    return 1;
}

/* At the top of what may not be called while another thread captures a graph, and of what takes a stream or memory. */
#define UNSAFE do { if (setting(0, "capture") && mode != RELAXED) { note_misuse(__func__); return CAPTURE_UNSUPPORTED; } } while (0)
#define STREAM(stream) do { UNSAFE; if (is_stale((long)(stream) - 1, __func__)) return INVALID_HANDLE; } while (0)
#define MEMORY do { UNSAFE; if (is_stale(allocated_at[here()], __func__)) return INVALID_HANDLE; } while (0)

static int order(int *gpus) {
    const char *asked = getenv("CUDA_DEVICE_ORDER");
    int by_bus = asked && !strcmp(asked, "PCI_BUS_ID"), count = 0;
    for (int slow = 0; slow < 2; slow++)
        for (int gpu = 0; gpu < gpu_count(); gpu++)
            if (!setting(0, "hidden.%d", gpu) && (by_bus ? !slow : slow == (setting(0, "slow_model.%d", gpu) != 0)))
                gpus[count++] = gpu;
    return count;
}

/* What NVIDIA's documentation says of CUDA_VISIBLE_DEVICES, for numbers and for UUIDs. */
static void show(const char *list) {
    int gpus[MOST], count = order(gpus);
    if (!list) {
        for (int index = 0; index < count; index++) shown[shown_count++] = gpus[index];
        return;
    }
    char copy[256], *rest = copy;
    snprintf(copy, sizeof copy, "%s", list);
    for (char *part; (part = strsep(&rest, ","));) {
        char *end, uuid[80];
        long found = strtol(part, &end, 10);
        if (end == part) {
            found = -1;
            for (int index = 0; index < count; index++) {
                write_uuid(uuid, sizeof uuid, gpus[index], 0);
                if (*part && !strncmp(uuid, part, strlen(part))) found = found == -1 ? index : -2;
            }
        }
        if (found < 0 || found >= count) return;
        for (int other = 0; other < shown_count; other++)
            if (shown[other] == gpus[found]) { shown_count = 0; return; }
        shown[shown_count++] = gpus[found];
    }
}

Result cuInit(unsigned flags) {
    (void)flags;
    Result result = (Result)setting(SUCCESS, "cuinit");
    if (result || initialized) return result;
    show(getenv("CUDA_VISIBLE_DEVICES"));
    initialized = 1;
    return shown_count ? SUCCESS : NO_DEVICE;
}
static Result cuGetErrorString(Result code, const char **text) { *text = code ? "an error of the stand-in" : "no error"; return SUCCESS; }
static Result cuGetErrorName(Result code, const char **text) { return cuGetErrorString(code, text); }
Result cuDeviceGetCount(int *count) { *count = shown_count; return initialized ? SUCCESS : NOT_INITIALIZED; }
Result cuDeviceGet(int *device, int ordinal) {
    if (ordinal < 0 || ordinal >= shown_count) return INVALID_DEVICE;
    *device = ordinal;
    return SUCCESS;
}
Result cuDeviceGetUuid(char *uuid, int device) {
    int gpu = shown[device];
    memset(uuid, 0, 16);
    uuid[9] = setting(-1, "migs.%d", gpu) >= 0;
    uuid[15] = (char)(gpu + setting(0, "stranger"));
    return SUCCESS;
}
static Result cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    *value = attribute == MPS_ENABLED && setting(0, "mps");
    return SUCCESS;
}
static Result cuThreadExchangeStreamCaptureMode(int *wanted) { int before = mode; mode = *wanted; *wanted = before; return SUCCESS; }
static Result cuCtxGetId(void *context, unsigned long long *id) {
    *id = (unsigned long long)((long)context + MOST * setting(0, "reset.%ld", (long)context - 1));
    return SUCCESS;
}
static Result cuDevicePrimaryCtxRetain(void **context, int device) {
    UNSAFE;
    *context = (void *)(long)(shown[device] + 1);
    return (Result)setting(SUCCESS, "retain.%d", shown[device]);
}
static Result cuDevicePrimaryCtxRelease(int device) { UNSAFE; (void)device; return SUCCESS; }
static Result cuCtxPushCurrent(void *context) { current[depth++] = (long)context; return SUCCESS; }
static Result cuCtxPopCurrent(void **context) { *context = (void *)current[--depth]; return SUCCESS; }
static Result cuStreamCreate(void **stream, unsigned flags) { UNSAFE; (void)flags; *stream = (void *)(resets() + 1); return fate(); }
static Result cuStreamDestroy(void *stream) { STREAM(stream); return fate(); }
static Result cuStreamQuery(void *stream) {
    STREAM(stream);
    Result result = fate();
    return result ? result : setting(0, "busy.%d", here()) ? NOT_READY : SUCCESS;
}
static Result cuMemAlloc(unsigned long long *memory, size_t size) {
    UNSAFE;
    *memory = (unsigned long long)malloc(size);
    allocated_at[here()] = resets();
    return fate();
}
static Result cuMemFree(unsigned long long memory) { MEMORY; free((void *)memory); return fate(); }
static Result cuMemHostAlloc(void **memory, size_t size, unsigned flags) { UNSAFE; (void)flags; *memory = malloc(size); return fate(); }
static Result cuMemFreeHost(void *memory) { MEMORY; free(memory); return fate(); }
static Result cuMemcpyHtoDAsync(unsigned long long to, const void *from, size_t size, void *stream) {
    STREAM(stream);
    memcpy((void *)to, from, size);
    return fate();
}
static Result cuMemcpyDtoDAsync(unsigned long long to, unsigned long long from, size_t size, void *stream) {
    return cuMemcpyHtoDAsync(to, (void *)from, size, stream);
}
static Result cuMemcpyDtoHAsync(void *to, unsigned long long from, size_t size, void *stream) {
    Result result = cuMemcpyHtoDAsync((unsigned long long)to, (void *)from, size, stream);
    if (setting(0, "flip.%d", here())) ((char *)to)[1234] ^= 1;
    return result;
}
static Result cuMemsetD32Async(unsigned long long to, unsigned value, size_t count, void *stream) {
    STREAM(stream);
    for (size_t index = 0; index < count; index++) ((unsigned *)to)[index] = value;
    if (setting(0, "unset.%d", here())) ((unsigned *)to)[7] = 0;
    return fate();
}

#define KNOWN(name) if (!strcmp(symbol, #name)) { *function = (void *)name; return SUCCESS; }

Result cuGetProcAddress_v2(const char *symbol, void **function, int version, unsigned long long flags, int *status) {
    (void)version, (void)flags;
    if (status) *status = 0;
    KNOWN(cuInit) KNOWN(cuGetErrorString) KNOWN(cuGetErrorName) KNOWN(cuDeviceGetCount) KNOWN(cuDeviceGet)
    KNOWN(cuDeviceGetUuid) KNOWN(cuDevicePrimaryCtxRetain) KNOWN(cuDevicePrimaryCtxRelease) KNOWN(cuCtxPushCurrent)
    KNOWN(cuCtxPopCurrent) KNOWN(cuStreamCreate) KNOWN(cuStreamDestroy) KNOWN(cuStreamQuery) KNOWN(cuMemAlloc)
    KNOWN(cuMemFree) KNOWN(cuMemHostAlloc) KNOWN(cuMemFreeHost) KNOWN(cuMemcpyHtoDAsync) KNOWN(cuMemcpyDtoDAsync)
    KNOWN(cuMemcpyDtoHAsync) KNOWN(cuMemsetD32Async) KNOWN(cuDeviceGetAttribute) KNOWN(cuCtxGetId)
    KNOWN(cuThreadExchangeStreamCaptureMode)
    if (!strcmp(symbol, "cuGetProcAddress")) { *function = (void *)cuGetProcAddress_v2; return SUCCESS; }
    *function = NULL;
    if (status) *status = 1;
    return NOT_FOUND;
}
