/* What the stand-ins for NVIDIA's libraries pretend: lines `name value` in the file that STAND_IN_SETTINGS names,
   read anew for each question, so that a test can change them while a process runs. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long setting(long fallback, const char *format, ...) {
    char wanted[64], name[64];
    long value, found = fallback;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(wanted, sizeof wanted, format, arguments);
    va_end(arguments);
    const char *path = getenv("STAND_IN_SETTINGS");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) return fallback;
    while (fscanf(file, "%63s %ld", name, &value) == 2)
        if (!strcmp(name, wanted)) found = value;
    fclose(file);
    return found;
}

/* Keeps what a program must not do, for a test to look at: a line in the file of that name and `.misuse`. */
static void note_misuse(const char *what) {
    char path[4096];
    snprintf(path, sizeof path, "%s.misuse", getenv("STAND_IN_SETTINGS"));
    FILE *file = fopen(path, "a");
    if (!file) return;
    fprintf(file, "%s\n", what);
    fclose(file);
}

static int gpu_count(void) { return (int)setting(4, "gpus"); }

/* The parts of a UUID that differ: which GPU, and, from 1, which of its MIG devices. */
static void write_uuid(char *text, size_t size, int gpu, int mig) {
    snprintf(text, size, "%s-00000000-0000-0000-%04x-%012x", mig ? "MIG" : "GPU", mig, gpu);
}
