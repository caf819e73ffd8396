/* A stand-in for libnvidia-ml.so.1, for tests: enough of it for the real pynvml to see GPUs that do not exist.
   A handle is the GPU's number and 1, and 1000 for each MIG device. `shutdowns` counts how often somebody else in the
   process has ended the session once too often. */
#include "settings.h"

typedef int Result;
enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, TIMEOUT = 10, LOST = 15, UNKNOWN = 999 };
enum { MIG_STEP = 1000 };

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned field, scope; long long time, latency; int type, result; union { unsigned u; double d; } value; } Field;
typedef struct { void *device; unsigned long long type, data; unsigned gpu_instance, compute_instance; } Event;

static int gpu_of(void *handle) { return (int)((long)handle - 1) % MIG_STEP; }
static int mig_of(void *handle) { return (int)((long)handle - 1) / MIG_STEP; }
/* The session: how often it was begun and not ended, which one it is, and how many of those shutdowns it has seen. */
static long begun, session_number, seen;
static Result open_session(void) {
    long others = setting(0, "shutdowns");
    if (others > seen) begun = 0;
    seen = others;
    return begun ? SUCCESS : UNINITIALIZED;
}

static Result usable(void *handle) {
    if (open_session()) return UNINITIALIZED;
    if (setting(0, "lost.%d", gpu_of(handle))) return LOST;
    return (Result)setting(SUCCESS, "fails.%d", gpu_of(handle));
}

#define CHECK(handle) do { Result result_ = usable(handle); if (result_) return result_; } while (0)
#define OPTIONAL(target, ...) do { long value_ = setting(-1, __VA_ARGS__); if (value_ < 0) return NOT_SUPPORTED; \
    *(target) = value_; return SUCCESS; } while (0)

Result nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    Result result = (Result)setting(SUCCESS, "init");
    if (result) return result;
    open_session();
    session_number += !begun++;
    return SUCCESS;
}
Result nvmlShutdown(void) {
    if (open_session()) return UNINITIALIZED;
    begun--;
    return SUCCESS;
}
const char *nvmlErrorString(Result result) { return result ? "an error of the stand-in" : "Success"; }
Result nvmlSystemGetDriverVersion(char *text, unsigned size) { if (open_session()) return UNINITIALIZED; snprintf(text, size, "999.88.77"); return SUCCESS; }

Result nvmlDeviceGetCount_v2(unsigned *count) { if (open_session()) return UNINITIALIZED; *count = (unsigned)gpu_count(); return (Result)setting(SUCCESS, "count"); }

Result nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    if (open_session()) return UNINITIALIZED;
    if (index >= (unsigned)gpu_count()) return INVALID_ARGUMENT;
    if (setting(0, "denied.%u", index)) return NO_PERMISSION;
    *handle = (void *)(long)(index + 1);
    return usable(*handle);
}

Result nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    if (open_session()) return UNINITIALIZED;
    for (int gpu = 0; gpu < gpu_count(); gpu++) {
        char text[80];
        write_uuid(text, sizeof text, gpu, 0);
        *handle = (void *)(long)(gpu + 1);
        if (!strcmp(text, uuid)) return setting(0, "gone.%d", gpu) ? NOT_FOUND : usable(*handle);
    }
    return NOT_FOUND;
}

Result nvmlDeviceGetUUID(void *handle, char *text, unsigned size) {
    CHECK(handle);
    write_uuid(text, size, gpu_of(handle), mig_of(handle));
    return SUCCESS;
}

Result nvmlDeviceGetName(void *handle, char *text, unsigned size) {
    CHECK(handle);
    const char *model = setting(0, "slow_model.%d", gpu_of(handle)) ? "NVIDIA Stand-in Lite" : "NVIDIA Stand-in";
    snprintf(text, size, "%s%s", model, mig_of(handle) ? " MIG 1g.10gb" : "");
    return SUCCESS;
}

Result nvmlDeviceGetMemoryInfo(void *handle, Memory *memory) {
    CHECK(handle);
    memory->total = 80ULL << 30;
    memory->used = 1ULL << 30;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

static void write_pci(Pci *pci, int gpu) {
    memset(pci, 0, sizeof *pci);
    pci->bus = 0x10 * (unsigned)(gpu + 1);
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", pci->bus);
}

Result nvmlDeviceGetPciInfo_v3(void *handle, Pci *pci) { CHECK(handle); write_pci(pci, gpu_of(handle)); return SUCCESS; }

/* NVLinks are numbered GPU by GPU at their other end, then those to switches, which are at -1. */
static int link_end(int gpu, unsigned link) {
    for (int other = 0; other < gpu_count(); other++) {
        unsigned count = (unsigned)setting(0, "links.%d.%d", gpu, other);
        if (link < count) return other;
        link -= count;
    }
    return link < (unsigned)setting(0, "switches.%d", gpu) ? -1 : -2;
}

Result nvmlDeviceGetNvLinkState(void *handle, unsigned link, unsigned *state) {
    CHECK(handle);
    if (link_end(gpu_of(handle), link) == -2) return link ? INVALID_ARGUMENT : NOT_SUPPORTED;
    *state = !setting(0, "down.%d.%u", gpu_of(handle), link);
    return SUCCESS;
}

Result nvmlDeviceGetNvLinkRemoteDeviceType(void *handle, unsigned link, int *type) {
    CHECK(handle);
    *type = link_end(gpu_of(handle), link) == -1 ? 2 : 0;
    return SUCCESS;
}

Result nvmlDeviceGetNvLinkRemotePciInfo_v2(void *handle, unsigned link, Pci *pci) {
    CHECK(handle);
    write_pci(pci, link_end(gpu_of(handle), link));
    return SUCCESS;
}

Result nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    CHECK(handle);
    long count = setting(-1, "migs.%d", gpu_of(handle));
    if (setting(0, "no_mig")) return NOT_SUPPORTED;
    *current = *pending = count >= 0;
    return SUCCESS;
}

Result nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count) { CHECK(handle); *count = 7; return SUCCESS; }

Result nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **device) {
    CHECK(handle);
    if (index >= (unsigned)setting(0, "migs.%d", gpu_of(handle))) return NOT_FOUND;
    *device = (void *)((long)handle + MIG_STEP * (long)(index + 1));
    return SUCCESS;
}

Result nvmlDeviceGetGpuInstanceId(void *handle, unsigned *id) { *id = (unsigned)mig_of(handle); return SUCCESS; }
Result nvmlDeviceGetComputeInstanceId(void *handle, unsigned *id) { (void)handle; *id = 0; return SUCCESS; }

Result nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *degrees) {
    CHECK(handle);
    (void)sensor;
    *degrees = (unsigned)setting(40, "temperature.%d", gpu_of(handle));
    return SUCCESS;
}

Result nvmlDeviceGetTemperatureThreshold(void *handle, int threshold, unsigned *degrees) {
    CHECK(handle);
    *degrees = threshold == 0 ? 95 : 90;
    return SUCCESS;
}

Result nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, unsigned long long *reasons) {
    CHECK(handle);
    if (setting(0, "no_reasons")) return UNKNOWN;
    *reasons = (unsigned long long)setting(1, "slowdown.%d", gpu_of(handle));
    return SUCCESS;
}

Result nvmlDeviceGetTotalEccErrors(void *handle, int kind, int counter, unsigned long long *count) {
    CHECK(handle);
    if (kind != 1 || counter != 0) return INVALID_ARGUMENT;
    OPTIONAL(count, "ecc.%d", gpu_of(handle));
}

Result nvmlDeviceGetRemappedRows(void *handle, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    CHECK(handle);
    *corrected = *uncorrected = 0;
    *pending = (unsigned)setting(0, "remap_pending.%d", gpu_of(handle));
    *failed = (unsigned)setting(0, "remap_failed.%d", gpu_of(handle));
    return SUCCESS;
}

Result nvmlDeviceGetRetiredPages(void *handle, int cause, unsigned *count, unsigned long long *pages) {
    CHECK(handle);
    long there = cause == 1 ? setting(-1, "retired.%d", gpu_of(handle)) : 0;
    if (there < 0) return NOT_SUPPORTED;
    *count = (unsigned)there;
    for (long page = 0; pages && page < there; page++) pages[page] = (unsigned long long)page << 16;
    return SUCCESS;
}

Result nvmlDeviceGetRetiredPagesPendingStatus(void *handle, int *pending) {
    CHECK(handle);
    OPTIONAL(pending, "retirement_pending.%d", gpu_of(handle));
}

Result nvmlDeviceGetFieldValues(void *handle, int count, Field *fields) {
    CHECK(handle);
    for (int index = 0; index < count; index++) {
        long action = fields[index].field == 230 ? setting(-1, "recovery.%d", gpu_of(handle)) : -1;
        fields[index].result = action < 0 ? NOT_SUPPORTED : SUCCESS;
        fields[index].value.u = action < 0 ? 0 : (unsigned)action;
    }
    return SUCCESS;
}

/* A set of events belongs to the session that it was made in: the library would crash over one of an earlier session. */
static Result usable_set(void *set) {
    if (open_session()) return UNINITIALIZED;
    if (*(long *)set == session_number) return SUCCESS;
    note_misuse("a set of events of an earlier session");
    return INVALID_ARGUMENT;
}
Result nvmlEventSetCreate(void **set) {
    if (open_session()) return UNINITIALIZED;
    *set = malloc(sizeof(long));
    *(long *)*set = session_number;
    return setting(0, "no_events") ? NOT_SUPPORTED : SUCCESS;
}
Result nvmlEventSetFree(void *set) {
    Result result = usable_set(set);
    if (!result) free(set);
    return result;
}
Result nvmlDeviceRegisterEvents(void *handle, unsigned long long types, void *set) {
    Result result = usable_set(set);
    return result ? result : types == 8 ? usable(handle) : INVALID_ARGUMENT;
}

/* The setting `xid.N` is the Nth event: the GPU's number times 1000, and the Xid. `storm` is one that comes all the
   time, after those. */
Result nvmlEventSetWait_v2(void *set, Event *event, unsigned timeout) {
    static int told;
    (void)timeout;
    Result result = usable_set(set);
    if (result) return result;
    long next = setting(-1, "xid.%d", told);
    if (next >= 0) told++;
    else next = setting(-1, "storm");
    if (next < 0) return TIMEOUT;
    memset(event, 0, sizeof *event);
    event->device = (void *)(next / 1000 + 1);
    event->type = 8;
    event->data = (unsigned long long)(next % 1000);
    return SUCCESS;
}
