/* The engine for a Snapdragon's DSP: a process on it, the network's object loaded.
 *
 * Order as in dsp/hexagon/fastrpc/domain.py: open the node, start a process with the shell, announce the
 * listener, remotectl.open, calls; methods of the object: dsp/hexagon/kernels/skel.c.
 */
#include "rpc.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const uint32_t ENGINE = FOR_DSP;

/* linux/dma-heap.h and linux/dma-buf.h (evidence: published). */
struct heap {
  uint64_t bytes;
  uint32_t file, file_flags;
  uint64_t heap_flags;
};

#define DMA_HEAP_ALLOC REQUEST(3, 'H', 0, struct heap)
#define DMA_BUF_SYNC REQUEST(1, 'b', 0, uint64_t)

_Static_assert(sizeof(struct heap) == 24, "as in linux/dma-heap.h");

enum { SYNC_READ = 1, SYNC_WRITE = 2, SYNC_END = 4, READ_WRITE_CLOEXEC = 02000002 };
enum { REMOTECTL = 0 };
enum { OPEN, CLOSE };
enum { LOAD = 2, RUN, TRACE, PROFILE, CONTEXTS, CLOCK };
enum { REPORT = 3 }; /* words: microseconds, low word first; contexts */
enum { PAGE = 4096, ERROR_TEXT = 255, PATH = 512, AUDIO = 0, COMPUTE = 3 };

/* In the order in which they are tried. */
static const struct driver *const DRIVERS[] = {&MAINLINE, &ANDROID};
static const char *const DOMAINS[] = {"adsp", NULL, NULL, "cdsp"};
static const char *const DIRECTORIES[] = {
    "/usr/lib/dsp/%s",    "/usr/lib/dsp", "/usr/lib/qcom/%s", "/usr/lib/rfsa/adsp",
    "/vendor/dsp/%s",     "/vendor/dsp",  "/dsp/%s",          "/dsp",
    "/usr/share/qcom/*/*/*/dsp/%s"};

static const struct driver *driver;
const char *reason = "";
static uint64_t shell_bytes; /* while a process is started */
static uint32_t is_signed;   /* the process */
static int node = -1;
static const char *domain;
static uint32_t domain_number;
static const struct plan *plan;
static uint32_t handle;
static struct buffer input, output;

void refused(const char *step, int64_t result) {
  if (result >= 0) fail("dsp", "%s\t%u\t%u\t%s", domain, is_signed, (uint32_t)result, step);
  fail("kernel", "%s\t%s\t%d\t%llu\t%s\t%s", driver->name, domain, (int)-result, (unsigned long long)shell_bytes,
       step, reason);
}

int64_t call(uint32_t module, uint32_t method, const uint32_t *words, uint32_t count,
             const struct argument *arguments, uint32_t inputs, uint32_t outputs) {
  struct argument table[ARGUMENTS];
  uint32_t first = count ? 1 : 0;
  if (count) table[0] = (struct argument){(uintptr_t)words, 4 * count, -1, 0};
  memcpy(table + first, arguments, (inputs + outputs) * sizeof *table);
  uint32_t scalars = method << 24 | (inputs + first) << 16 | outputs << 8;
  return driver->invoke(node, module, scalars, table, first + inputs + outputs);
}

int64_t heap_grow(uint32_t flags, uint64_t bytes, uint64_t *address) {
  struct grow grow = {-1, flags, 0, bytes, 0};
  int64_t result = system_ioctl(node, driver->mmap, &grow);
  *address = grow.out;
  return result;
}

int64_t heap_shrink(uint64_t address, uint64_t bytes) {
  struct shrink shrink = {address, bytes};
  return system_ioctl(node, driver->munmap, &shrink);
}

/* -- memory ------------------------------------------------------------------------------------------- */

static struct buffer buffer(uint64_t bytes) {
  struct buffer made = {0, bytes ? bytes : 1, -1};
  uint64_t whole = (made.bytes + PAGE - 1) / PAGE * PAGE;
  int heap = system_open("/dev/dma_heap/system", O_RDONLY);
  int64_t result;
  if (heap >= 0) {
    struct heap request = {whole, 0, READ_WRITE_CLOEXEC, 0};
    result = system_ioctl(heap, DMA_HEAP_ALLOC, &request);
    system_close(heap);
    made.file = (int32_t)request.file;
  } else {
    result = driver->allocate(node, whole, &made.file);
  }
  if (result) refused("memory for a buffer", result);
  void *memory = system_map(made.file, whole);
  if (!memory) fail("memory", "a buffer of %llu bytes cannot be mapped", (unsigned long long)whole);
  made.address = (uintptr_t)memory;
  return made;
}

/* The driver's own buffers are coherent, and some kernels do not implement the request for them. */
static void sync_buffer(const struct buffer *made, uint64_t flags) {
  system_ioctl(made->file, DMA_BUF_SYNC, &flags);
}

static void fill(const struct buffer *made, const uint8_t *data, uint64_t bytes) {
  sync_buffer(made, SYNC_WRITE);
  memcpy((void *)(uintptr_t)made->address, data, bytes);
  sync_buffer(made, SYNC_WRITE | SYNC_END);
}

static void take(const struct buffer *made, void *to) {
  sync_buffer(made, SYNC_READ);
  memcpy(to, (const void *)(uintptr_t)made->address, made->bytes);
  sync_buffer(made, SYNC_READ | SYNC_END);
}

static struct argument passed(const struct buffer *made) {
  return (struct argument){made->address, made->bytes, made->file, 0};
}

/* -- the DSP's files ---------------------------------------------------------------------------------- */

static struct file read_file(const char *path) {
  struct file file = {NULL, 0};
  FILE *stream = fopen(path, "rbe");
  if (!stream) return file;
  if (!fseek(stream, 0, SEEK_END)) {
    long bytes = ftell(stream);
    rewind(stream);
    if (bytes > 0) {
      uint8_t *data = allocate((size_t)bytes);
      if (fread(data, 1, (size_t)bytes, stream) == (size_t)bytes) file = (struct file){data, (size_t)bytes};
    }
  }
  fclose(stream);
  return file;
}

static struct file in_directory(const char *directory, size_t length, const char *name) {
  char path[PATH];
  int needed = snprintf(path, sizeof path, "%.*s/%s", (int)length, directory, name);
  return needed < PATH ? read_file(path) : (struct file){NULL, 0};
}

struct file library(const char *name) {
  struct file found = {NULL, 0};
  const char *own = getenv("DSP_LIBRARY_PATH");
  while (own && *own && !found.data) {
    size_t length = strcspn(own, ";");
    if (length) found = in_directory(own, length, name);
    own += length + (own[length] == ';');
  }
  for (size_t i = 0; i < sizeof DIRECTORIES / sizeof *DIRECTORIES && !found.data; i++) {
    char pattern[PATH];
    glob_t matches;
    snprintf(pattern, sizeof pattern, DIRECTORIES[i], domain);
    if (!glob(pattern, 0, NULL, &matches))
      for (size_t k = 0; k < matches.gl_pathc && !found.data; k++)
        found = in_directory(matches.gl_pathv[k], strlen(matches.gl_pathv[k]), name);
    globfree(&matches);
  }
  return found;
}

/* -- the process -------------------------------------------------------------------------------------- */

/* Opens the first node that may be opened. The process there: 0 unsigned, 1 signed, ANY by the shell. */
static uint32_t open_node(void) {
  static const uint32_t ORDER[] = {COMPUTE, AUDIO};
  char denied[1024] = "";
  for (unsigned which = 0; which < 2; which++) {
    if (plan->driver != ANY && plan->driver != which) continue;
    for (unsigned i = 0; i < 2; i++) {
      if (plan->domain != ANY && plan->domain != ORDER[i]) continue;
      driver = DRIVERS[which], domain = DOMAINS[ORDER[i]], domain_number = ORDER[i];
      uint32_t usual = ORDER[i] == AUDIO ? 1 : driver->by_shell ? ANY : 0;
      uint32_t kind = plan->process == ANY ? usual : plan->process;
      for (unsigned k = 0; k < 2; k++) {
        char path[64];
        driver->path(path, domain, kind == 1, k == 1);
        node = system_open(path, driver->flags);
        if (node >= 0) return kind;
        size_t used = strlen(denied); /* at most 8 nodes */
        if (node != -ENOENT && node != -ENXIO)
          snprintf(denied + used, sizeof denied - used, "%s%s\t%d\t%s", used ? "\t" : "", driver->name, -node, path);
      }
    }
  }
  if (*denied) fail("denied", "%s", denied);
  fail("absent", "no node");
}

static void create(uint32_t kind) {
  char name[64];
  struct file shell = {NULL, 0};
  is_signed = kind == 1;
  for (;;) {
    snprintf(name, sizeof name, "fastrpc_shell_%s%u", is_signed ? "" : "unsigned_", domain_number);
    shell = library(name);
    if (kind != ANY || shell.data || is_signed) break;
    is_signed = 1;
  }
  if (!shell.data) fail("shell", "%s\t%u", domain, kind);
  shell_bytes = shell.bytes;
  int64_t result = driver->prepare(node, domain_number);
  if (result) refused("the start of a process", result);
  /* It stays: kernels before 6.18 take a later buffer with the same descriptor for this one. */
  struct buffer memory = buffer(shell.bytes);
  fill(&memory, shell.data, shell.bytes);
  result = driver->create(node, &memory, (int)is_signed);
  if (result) refused("the start of a process", result);
  shell_bytes = 0;
  note("a process on the %s, from %s, by the %s driver", domain, name, driver->name);
}

static void open_object(const char *name) {
  char uri[160], text[ERROR_TEXT + 1] = "";
  uint32_t opened[2] = {0, 0};
  uint32_t bytes = 1 + (uint32_t)snprintf(
      uri, sizeof uri, "file:///%s?towline_skel_handle_invoke&_modver=1.0&_dom=%s", name, domain);
  const uint32_t words[] = {bytes, ERROR_TEXT};
  const struct argument arguments[] = {{(uintptr_t)uri, bytes, -1, 0},
                                       {(uintptr_t)opened, sizeof opened, -1, 0},
                                       {(uintptr_t)text, ERROR_TEXT, -1, 0}};
  int64_t result = call(REMOTECTL, OPEN, words, 2, arguments, 1, 2);
  if (result) refused("the loading of the network", result);
  if (opened[1]) {
    for (char *c = text; *c; c++)
      if ((unsigned char)*c < ' ') *c = ' '; /* the message is a line of fields */
    fail("loader", "%s\t%u\t%d\t%s", domain, is_signed, (int32_t)opened[1], text);
  }
  handle = opened[0];
}

/* A setting of the object, by a word or by data: the word that it answers. */
static uint32_t set(uint32_t method, uint32_t word, const struct argument *data, const char *what) {
  uint32_t answer = 0, inputs = 0;
  struct argument arguments[2];
  if (data) arguments[inputs++] = *data;
  arguments[inputs] = (struct argument){(uintptr_t)&answer, sizeof answer, -1, 0};
  int64_t result = call(handle, method, &word, 1, arguments, inputs, 1);
  if (result) refused(what, result);
  return answer;
}

/* Contexts and clock rate, until the object is closed. */
static struct setup set_up(void) {
  struct setup setup = {1, 0};
  if (plan->contexts) {
    const struct argument schedule = {(uintptr_t)plan->schedule, plan->schedule_bytes, -1, 0};
    setup.contexts = set(CONTEXTS, (uint32_t)plan->schedule_bytes, &schedule, "the contexts");
    if (plan->contexts == 2 && setup.contexts < 2) fail("contexts", "the DSP gives a process one HVX context");
  }
  if (plan->clock) setup.clock = (int32_t)set(CLOCK, 1, NULL, "the clock rate");
  return setup;
}

/* With a report of REPORT words, or NULL. */
static void infer(uint32_t method, const uint8_t *data, const struct buffer *answer, void *to, uint32_t *report) {
  fill(&input, data, plan->input_bytes);
  const uint32_t words[] = {(uint32_t)input.bytes, (uint32_t)answer->bytes};
  struct argument arguments[3] = {passed(&input), {(uintptr_t)report, 4 * REPORT, -1, 0}};
  uint32_t outputs = report ? 2 : 1;
  arguments[outputs] = passed(answer);
  int64_t result = call(handle, method, words, 2, arguments, 1, outputs);
  if (result) refused("an inference", result);
  take(answer, to);
}

/* The object compares the sizes with its own; a call has 32 bits for each. */
void engine_check(const struct plan *given) {
  if (given->input_bytes > UINT32_MAX || given->output_bytes > UINT32_MAX || given->trace_bytes > UINT32_MAX ||
      given->weights.bytes > UINT32_MAX || given->layers >= UINT32_MAX / 4)
    fail("plan", "sizes of more than 32 bits");
}

struct setup engine_open(const struct plan *given, const uint8_t *code, const uint8_t *weights) {
  static char name[64];
  plan = given;
  for (unsigned i = 0; i < 6; i++)
    sprintf(name + 11 + 2 * i, "%02x", plan->code.digest[i]);
  memcpy(name, "libtowline_", 11);
  strcat(name, ".so");
  create(open_node());
  listener_start(name, (struct file){code, plan->code.bytes});
  open_object(name);
  if (plan->weights.bytes) {
    struct buffer memory = buffer(plan->weights.bytes);
    fill(&memory, weights, plan->weights.bytes);
    const uint32_t words[] = {(uint32_t)memory.bytes};
    const struct argument arguments[] = {passed(&memory)};
    int64_t result = call(handle, LOAD, words, 1, arguments, 1, 0);
    if (result) refused("the weights", result);
  }
  input = buffer(plan->input_bytes);
  output = buffer(plan->output_bytes);
  return set_up();
}

struct outcome engine_run(const uint8_t *data, uint8_t *to, struct run *run) {
  uint32_t report[REPORT] = {~0u, ~0u, 1};
  infer(RUN, data, &output, to, plan->contexts ? report : NULL);
  run->device_us = (uint64_t)report[1] << 32 | report[0];
  run->contexts = report[2];
  return (struct outcome){-1, 0, 0};
}

void engine_trace(const uint8_t *data, uint8_t *kept) {
  struct buffer memory = buffer(plan->trace_bytes);
  infer(TRACE, data, &memory, kept, NULL);
}

/* The DSP's timer counts with 19.2 MHz (evidence: inferred). */
void engine_profile(const uint8_t *data, uint64_t *nanoseconds) {
  struct buffer memory = buffer(4 * ((uint64_t)plan->layers + 1));
  uint32_t *ticks = allocate(memory.bytes);
  infer(PROFILE, data, &memory, ticks, NULL);
  for (uint32_t i = 0; i < plan->layers; i++)
    nanoseconds[i] = (uint64_t)(ticks[i + 1] - ticks[i]) * 10000 / 192;
  free(ticks);
}

/* The object ends its thread and withdraws its vote. The process on the DSP ends with the node, which the kernel closes
 * when this program ends (evidence: published for mainline, inferred for Android). */
void engine_close(void) {
  char text[ERROR_TEXT];
  uint32_t error;
  const uint32_t words[] = {handle, ERROR_TEXT};
  const struct argument answers[] = {{(uintptr_t)&error, sizeof error, -1, 0}, {(uintptr_t)text, ERROR_TEXT, -1, 0}};
  call(REMOTECTL, CLOSE, words, 2, answers, 0, 2);
}
