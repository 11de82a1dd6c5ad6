/* The part of NVIDIA's management library that nvidia-ml-py is asked for, by a script.
 *
 * A stand-in for machines without a GPU: built into libnvidia-ml.so.1, it is loaded by the
 * real Python binding through the real ctypes. The script is a text file of lines
 * "KEY VALUE", read again whenever it is replaced; see fake_nvml.py, which writes it.
 * A value "na" is NVML_ERROR_NOT_SUPPORTED, "error N" the return code N.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum {
  SUCCESS = 0,
  UNINITIALIZED = 1,
  INVALID_ARGUMENT = 2,
  NOT_SUPPORTED = 3,
  NOT_FOUND = 6,
  DRIVER_NOT_LOADED = 9,
  TIMEOUT = 10,
};
enum { MOST_ENTRIES = 4096, MOST_DEVICES = 64, MOST_INSTANCES = 8 };

typedef struct {
  char key[48];
  char value[96];
} entry;

typedef struct {
  int index;
  int instance; /* -1 for the board itself */
} device;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char script[1024];
static entry entries[MOST_ENTRIES];
static int entry_count;
static struct stat seen;
static device boards[MOST_DEVICES];
static device instances[MOST_DEVICES][MOST_INSTANCES];
static int initialised;
static long epoch = -1;
static long delivered;

/* For tests in the process that loaded the library. */
void fake_nvml_use(const char *path) {
  snprintf(script, sizeof script, "%s", path);
  memset(&seen, 0, sizeof seen);
  initialised = 0;
  delivered = 0;
  epoch = -1;
}

static void refresh(void) {
  struct stat now;
  if (!script[0]) {
    const char *path = getenv("FAKE_NVML_SCRIPT");
    if (path) snprintf(script, sizeof script, "%s", path);
  }
  if (stat(script, &now) != 0) return;
  if (now.st_ino == seen.st_ino && now.st_mtim.tv_sec == seen.st_mtim.tv_sec &&
      now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec)
    return;
  FILE *file = fopen(script, "r");
  if (!file) return;
  char line[256];
  entry_count = 0;
  while (entry_count < MOST_ENTRIES && fgets(line, sizeof line, file)) {
    entry *next = &entries[entry_count];
    if (sscanf(line, "%47s %95[^\n]", next->key, next->value) == 2) entry_count++;
  }
  fclose(file);
  seen = now;
}

static const char *lookup(const char *key) {
  for (int i = 0; i < entry_count; i++)
    if (strcmp(entries[i].key, key) == 0) return entries[i].value;
  return NULL;
}

static const char *of_device(int index, const char *field) {
  char key[64];
  snprintf(key, sizeof key, "%d.%s", index, field);
  return lookup(key);
}

static int status_of(const char *value) {
  if (!value || strcmp(value, "na") == 0) return NOT_SUPPORTED;
  if (strncmp(value, "error ", 6) == 0) return atoi(value + 6);
  return SUCCESS;
}

/* Whether the library can be asked at all. */
static int ready(void) {
  refresh();
  const char *driver = lookup("driver");
  const char *loaded = lookup("epoch");
  if (!initialised || !driver || strcmp(driver, "gone") == 0) return UNINITIALIZED;
  /* A driver that was loaded anew no longer knows this process. */
  return (loaded ? atol(loaded) : 0) == epoch ? SUCCESS : UNINITIALIZED;
}

static int text(const char *value, char *into, unsigned int size) {
  int status = status_of(value);
  if (status == SUCCESS) snprintf(into, size, "%s", value);
  return status;
}

/* One number of one board; `value` may be NULL. */
static int number(device *of, const char *field, unsigned long long *value) {
  pthread_mutex_lock(&lock);
  int status = ready();
  if (status == SUCCESS) {
    const char *lost = of_device(of->index, "lost");
    const char *found = of_device(of->index, field);
    /* Power, energy and utilisation are the whole board's: N/A for an instance. */
    if (of->instance >= 0) found = NULL;
    status = lost ? atoi(lost) : status_of(found);
    if (status == SUCCESS) *value = strtoull(found, NULL, 0);
  }
  pthread_mutex_unlock(&lock);
  return status;
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int nvmlInitWithFlags(unsigned int flags) {
  (void)flags;
  pthread_mutex_lock(&lock);
  refresh();
  const char *driver = lookup("driver");
  int status = SUCCESS;
  if (!driver || strcmp(driver, "gone") == 0) status = DRIVER_NOT_LOADED;
  if (status == SUCCESS) {
    const char *loaded = lookup("epoch");
    epoch = loaded ? atol(loaded) : 0;
    initialised = 1;
  }
  pthread_mutex_unlock(&lock);
  return status;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) {
  int status = ready();
  initialised = 0;
  return status;
}

const char *nvmlErrorString(int result) {
  static __thread char shown[32];
  snprintf(shown, sizeof shown, "scripted error %d", result);
  return shown;
}

int nvmlSystemGetDriverVersion(char *into, unsigned int size) {
  int status = ready();
  return status != SUCCESS ? status : text(lookup("driver"), into, size);
}

int nvmlDeviceGetCount_v2(unsigned int *count) {
  int status = ready();
  const char *found = lookup("count");
  if (status == SUCCESS) *count = found ? (unsigned int)atoi(found) : 0;
  return status;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, device **handle) {
  int status = ready();
  if (status != SUCCESS) return status;
  if (index >= MOST_DEVICES) return INVALID_ARGUMENT;
  const char *hidden = of_device((int)index, "hidden");
  if (hidden) return atoi(hidden);
  boards[index].index = (int)index;
  boards[index].instance = -1;
  *handle = &boards[index];
  return SUCCESS;
}

int nvmlDeviceGetUUID(device *of, char *into, unsigned int size) {
  int status = ready();
  if (status != SUCCESS) return status;
  char field[32] = "uuid";
  if (of->instance >= 0) snprintf(field, sizeof field, "instance.%d", of->instance);
  return text(of_device(of->index, field), into, size);
}

int nvmlDeviceGetName(device *of, char *into, unsigned int size) {
  int status = ready();
  return status != SUCCESS ? status : text(of_device(of->index, "name"), into, size);
}

int nvmlDeviceGetMigMode(device *of, unsigned int *current, unsigned int *pending) {
  unsigned long long value = 0;
  int status = number(of, "mig", &value);
  *current = *pending = (unsigned int)value;
  return status;
}

int nvmlDeviceGetMaxMigDeviceCount(device *of, unsigned int *count) {
  (void)of;
  *count = MOST_INSTANCES - 1;
  return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(device *of, unsigned int place, device **handle) {
  char field[32];
  if (place >= MOST_INSTANCES) return INVALID_ARGUMENT;
  snprintf(field, sizeof field, "instance.%u", place);
  if (!of_device(of->index, field)) return NOT_FOUND;
  instances[of->index][place].index = of->index;
  instances[of->index][place].instance = (int)place;
  *handle = &instances[of->index][place];
  return SUCCESS;
}

/* A counter of millijoules: "energy", or "watts" since the library was loaded, updated
 * ten times a second as on real boards. */
int nvmlDeviceGetTotalEnergyConsumption(device *of, unsigned long long *millijoules) {
  unsigned long long watts = 0;
  int status = number(of, "energy", millijoules);
  if (status == NOT_SUPPORTED && number(of, "watts", &watts) == SUCCESS) {
    *millijoules = (unsigned long long)(seconds() * 10) * watts * 100;
    return SUCCESS;
  }
  return status;
}

int nvmlDeviceGetPowerUsage(device *of, unsigned int *milliwatts) {
  unsigned long long value = 0;
  int status = number(of, "power", &value);
  *milliwatts = (unsigned int)value;
  return status;
}

int nvmlDeviceGetEnforcedPowerLimit(device *of, unsigned int *milliwatts) {
  unsigned long long value = 0;
  int status = number(of, "limit", &value);
  *milliwatts = (unsigned int)value;
  return status;
}

typedef struct {
  unsigned int field, scope;
  long long timestamp, latency;
  unsigned int type;
  int status;
  union {
    double d;
    unsigned int ui;
    unsigned long long ull;
  } value;
} field_value;

int nvmlDeviceGetFieldValues(device *of, int count, field_value *values) {
  int status = ready();
  if (status != SUCCESS) return status;
  const char *lost = of_device(of->index, "lost");
  if (lost) return atoi(lost);
  for (int i = 0; i < count; i++) {
    char field[32];
    unsigned long long value = 0;
    snprintf(field, sizeof field, "field.%u", values[i].field);
    values[i].status = number(of, field, &value);
    values[i].type = 1; /* unsigned int */
    values[i].value.ui = (unsigned int)value;
  }
  return SUCCESS;
}

typedef struct {
  unsigned int gpu, memory;
} utilization;

int nvmlDeviceGetUtilizationRates(device *of, utilization *rates) {
  unsigned long long value = 0;
  int status = number(of, "utilization", &value);
  rates->gpu = (unsigned int)value;
  rates->memory = 0;
  return status;
}

typedef struct {
  unsigned long long total, free, used;
} memory;

int nvmlDeviceGetMemoryInfo(device *of, memory *info) {
  int status = number(of, "memory_total", &info->total);
  if (status == SUCCESS) status = number(of, "memory_used", &info->used);
  info->free = info->total - info->used;
  return status;
}

int nvmlDeviceGetTemperature(device *of, unsigned int sensor, unsigned int *celsius) {
  unsigned long long value = 0;
  (void)sensor;
  int status = number(of, "temperature", &value);
  *celsius = (unsigned int)value;
  return status;
}

int nvmlDeviceGetClockInfo(device *of, unsigned int domain, unsigned int *megahertz) {
  char field[32];
  unsigned long long value = 0;
  snprintf(field, sizeof field, "clock.%u", domain);
  int status = number(of, field, &value);
  *megahertz = (unsigned int)value;
  return status;
}

int nvmlDeviceGetCurrentClocksEventReasons(device *of, unsigned long long *reasons) {
  return number(of, "reasons", reasons);
}

typedef struct {
  unsigned long long reference, violation;
} violation_time;

int nvmlDeviceGetViolationStatus(device *of, unsigned int policy, violation_time *time) {
  char field[32];
  snprintf(field, sizeof field, "violation.%u", policy);
  time->reference = 0;
  return number(of, field, &time->violation);
}

int nvmlDeviceGetTotalEccErrors(device *of, unsigned int error, unsigned int counter,
                                unsigned long long *count) {
  char field[32];
  (void)counter;
  snprintf(field, sizeof field, "ecc.%u", error);
  return number(of, field, count);
}

int nvmlEventSetCreate(void **set) {
  *set = &delivered;
  return ready();
}

int nvmlDeviceRegisterEvents(device *of, unsigned long long types, void *set) {
  unsigned long long value = 0;
  (void)types, (void)set;
  return number(of, "events", &value);
}

int nvmlEventSetFree(void *set) {
  (void)set;
  return ready();
}

typedef struct {
  device *of;
  unsigned long long type, data;
  unsigned int gpu_instance, compute_instance;
} event;

/* "event.N BOARD XID", N counting from 1. */
int nvmlEventSetWait_v2(void *set, event *found, unsigned int milliseconds) {
  char key[32];
  int board = 0;
  (void)set, (void)milliseconds;
  int status = ready();
  if (status != SUCCESS) return status;
  snprintf(key, sizeof key, "event.%ld", delivered + 1);
  const char *next = lookup(key);
  if (!next || sscanf(next, "%d %llu", &board, &found->data) != 2) return TIMEOUT;
  delivered++;
  found->of = &boards[board];
  found->type = 8;
  found->gpu_instance = found->compute_instance = 0xffffffff;
  return SUCCESS;
}
