/* The network as a shared object that a FastRPC process on the DSP loads: what runtime.c is for qemu.
 *
 * The DSP's loader looks the one exported function up by the name in the module's URI
 * (fastrpc/domain.py) and calls it with the scalars of a call (method << 24 | inputs << 16 | outputs << 8 |
 * handles) and its buffers, laid out as qaic would: first input the lengths in words, first output none here.
 *   0 open     uri                 -> handle
 *   1 close    handle
 *   2 load     weights
 *   3 run      inputs              -> outputs; or a report, and outputs
 *   4 trace    inputs              -> every layer's output, then the outputs
 *   5 profile  inputs              -> the 19.2 MHz timer, a word at the start and one after each layer
 *   6 contexts schedule, or nothing for one context  -> how many will compute
 *   7 clock    1, or 0             -> 0, or why not: vote for the highest rate, or withdraw that
 * Inputs and outputs are the graph's, one after the other. A report is three words: microseconds, all ones if the
 * DSP does not tell, low word first; and how many contexts have computed. The time is that of the whole call: the wait
 * for HVX, the copies of inputs and outputs, the layers.
 *
 * What is used of the DSP's operating system (QuRT) and power manager (HAP) is weak: an image that lacks it loads the
 * object all the same, and computes with one context, at the clock rate there is.
 */
#include "kernels.h"

#define WEAK __attribute__((weak))

/* qurt_thread_attr_t; behind it room for what later versions append. */
struct thread_attributes {
  u8 name[16];
  u8 tcb_partition, stid;
  unsigned short priority;
  u8 asid, bus_priority;
  unsigned short timetest;
  u32 stack_bytes;
  u8 *stack;
  u32 later[8];
};
enum { NO_TIMETEST = 0xfffe, USUAL_PRIORITY = 192, ANY_BUS_PRIORITY = 255 };

/* HAP_power_request_t with the payload of DCVS version 2; enumerations are bytes here. */
struct power_request {
  u8 type __attribute__((aligned(8)));
  u8 dcvs __attribute__((aligned(8)));
  u8 option, set_latency;
  u32 latency; /* microseconds */
  u8 set_corners;
  struct {
    u8 target, lowest, highest;
    u32 reserved[3];
  } corners;
  u32 other_payloads[24];
};
enum { DCVS_V2 = 7, POWER_SAVER = 4, PERFORMANCE = 16, TURBO = 6, LATENCY = 100 };

enum { HVX_128_BYTES = 1 };

WEAK s32 qurt_thread_create(u32 *id, const struct thread_attributes *, void (*)(void *), void *);
WEAK s32 qurt_thread_join(u32 id, s32 *status);
WEAK u32 qurt_thread_get_id(void);
WEAK s32 qurt_thread_get_priority(u32 id);
WEAK void qurt_thread_exit(s32 status);
WEAK s32 qurt_futex_wait(u32 *, s32);
WEAK s32 qurt_futex_wake(u32 *, s32);
WEAK s32 qurt_hvx_lock(s32 mode);
WEAK s32 qurt_hvx_try_lock(s32 mode);
WEAK s32 qurt_hvx_unlock(void);
WEAK s32 HAP_power_set(void *client, const struct power_request *);
WEAK u64 HAP_perf_get_time_us(void);

/* A function's address, or 0. Calls are by it, so that loaders resolve a word, and need no stub for calls. */
#define FOUND(function)                      \
  ({                                         \
    __typeof__(&function) found = &function; \
    __asm__("" : "+r"(found));               \
    found;                                   \
  })

static void sleep_while(u32 *word, u32 value) { FOUND(qurt_futex_wait)(word, (s32)value); }

static void wake(u32 *word) { FOUND(qurt_futex_wake)(word, 1); }

static void take_turn(u32 part) { (void)part; }

#include "entry/contexts.h"

enum { OPEN, CLOSE, LOAD, RUN, TRACE, PROFILE, CONTEXTS, CLOCK };
/* AEEStdErr.h, as a DSP gives them. */
enum { BAD_PARAMETER = (s32)0x8000040e, UNSUPPORTED = (s32)0x80000414 };

union argument {
  struct {
    u8 *data;
    u32 bytes;
  } buffer;
  u64 handle;
};

/* The compiler may call these for structures. */
void *memset(void *to, int value, u32 bytes) {
  for (volatile u8 *p = to; bytes--;) *p++ = (u8)value;
  return to;
}

void *memcpy(void *to, const void *from, u32 bytes) {
  volatile u8 *p = to;
  for (const u8 *q = from; bytes--;) *p++ = *q++;
  return to;
}

/* HVX for this thread, until it is given back: other processes use it, too. From v65 on a thread without it has no
 * vectors, so that every use of HVX, `copy` included, is between the two. */
static u32 lock_hvx(s32 (*lock)(s32)) { return lock && FOUND(qurt_hvx_unlock) && !lock(HVX_128_BYTES); }

static void unlock_hvx(u32 locked) {
  if (locked) FOUND(qurt_hvx_unlock)();
}

/* By vectors. */
static u8 *copy(u8 *to, const u8 *from, u32 bytes) {
  u8 *end = to + bytes;
  for (; bytes >= VECTOR_BYTES; bytes -= VECTOR_BYTES, to += VECTOR_BYTES, from += VECTOR_BYTES)
    *(Unaligned *)to = *(const Unaligned *)from;
  memcpy(to, from, bytes);
  return end;
}

static u32 total(const struct span *spans, u32 count) {
  u32 bytes = 0;
  for (u32 i = 0; i < count; i++) bytes += spans[i].bytes;
  return bytes;
}

static u32 traced(void) {
  u32 bytes = 0;
  for (u32 i = 0; i < network.layers; i++) bytes += network.layer[i].trace_bytes;
  return bytes;
}

static s32 load(const union argument *args) {
  if (args[1].buffer.bytes != network.weights_bytes) return BAD_PARAMETER;
  u32 locked = lock_hvx(FOUND(qurt_hvx_lock));
  copy(network.weights, args[1].buffer.data, network.weights_bytes);
  unlock_hvx(locked);
  return 0;
}

/* -- two contexts -- */

static struct {
  u32 count;   /* that compute */
  u32 thread;  /* 1 if there is the second one */
  u32 id;      /* its */
  u32 leaving; /* it ends */
  u32 has_hvx; /* whether it may compute now */
} second = {.count = 1};

/* The second context is taken only if it is free: the first one holds its own while it waits, and two processes that
 * did so would wait for each other. */
static void second_context(void *nothing) {
  for (;;) {
    meet(1);
    if (second.leaving) break;
    second.has_hvx = lock_hvx(FOUND(qurt_hvx_try_lock));
    meet(1);
    if (second.has_hvx) compute_part(1, 2);
    unlock_hvx(second.has_hvx);
    meet(1);
  }
  (void)nothing;
  if (FOUND(qurt_thread_exit)) FOUND(qurt_thread_exit)(0);
}

static u32 start_second(void) {
  if (!FOUND(qurt_thread_create) || !FOUND(qurt_futex_wait) || !FOUND(qurt_futex_wake)) return 0;
  if (!FOUND(qurt_hvx_lock) || !FOUND(qurt_hvx_try_lock) || !FOUND(qurt_hvx_unlock)) return 0;
  static u8 stack[STACK_BYTES] __attribute__((aligned(128)));
  static struct thread_attributes attributes = {
      .name = "towline",
      .bus_priority = ANY_BUS_PRIORITY,
      .timetest = NO_TIMETEST,
      .stack_bytes = STACK_BYTES,
      .stack = stack,
  };
  attributes.priority = USUAL_PRIORITY;
  if (FOUND(qurt_thread_get_id) && FOUND(qurt_thread_get_priority))
    attributes.priority = (unsigned short)FOUND(qurt_thread_get_priority)(FOUND(qurt_thread_get_id)());
  second.leaving = 0;
  return !FOUND(qurt_thread_create)(&second.id, &attributes, second_context, 0);
}

static void end_second(void) {
  if (!second.thread) return;
  second.leaving = 1;
  meet(0);
  s32 status;
  if (FOUND(qurt_thread_join)) FOUND(qurt_thread_join)(second.id, &status);
  second.thread = 0, second.count = 1;
}

static s32 set_contexts(const union argument *args) {
  u32 bytes = args[1].buffer.bytes;
  if ((bytes && bytes != schedule_bytes) || args[2].buffer.bytes != sizeof(u32)) return BAD_PARAMETER;
  memcpy(schedule, args[1].buffer.data, bytes); /* without HVX */
  if (bytes && !second.thread) second.thread = start_second();
  second.count = bytes ? 1 + second.thread : 1;
  memcpy(args[2].buffer.data, &second.count, sizeof(u32));
  return 0;
}

/* All layers by all contexts, this one with HVX locked; what is kept after each begins at `to`. Returns how many have
 * computed. */
static u32 compute(const u8 *inputs, u8 *to, u8 *(*after)(const struct layer *, u8 *)) {
  for (u32 i = 0; i < network.inputs; i++) {
    copy(network.arena + network.input[i].offset, inputs, network.input[i].bytes);
    inputs += network.input[i].bytes;
  }
  kept = to, after_layer = after;
  u32 parts = second.count;
  if (second.count > 1) {
    meet(0);
    meet(0);
    if (!second.has_hvx) parts = 1;
  }
  compute_part(0, parts);
  if (second.count > 1) meet(0);
  return parts;
}

/* -- clock and time -- */

static u32 voted;

static s32 vote(u32 high) {
  if (!FOUND(HAP_power_set)) return UNSUPPORTED;
  static const struct power_request highest = {
      .type = DCVS_V2,
      .option = PERFORMANCE,
      .set_latency = 1,
      .latency = LATENCY,
      .set_corners = 1,
      .corners = {.target = TURBO},
  };
  static const struct power_request usual = {.type = DCVS_V2, .dcvs = 1, .option = POWER_SAVER};
  s32 result = FOUND(HAP_power_set)(&voted, high ? &highest : &usual);
  if (!result) voted = high;
  return result;
}

static s32 set_clock(const union argument *args) {
  if (args[0].buffer.bytes != sizeof(u32) || args[1].buffer.bytes != sizeof(u32)) return BAD_PARAMETER;
  s32 result = vote(*(const u32 *)args[0].buffer.data);
  memcpy(args[1].buffer.data, &result, sizeof result);
  return 0;
}

static u64 now(void) { return FOUND(HAP_perf_get_time_us) ? FOUND(HAP_perf_get_time_us)() : 0; }

/* -- inferences -- */

static u8 *keep_output(const struct layer *layer, u8 *kept) {
  return copy(kept, network.arena + layer->trace, layer->trace_bytes);
}

/* Read nowhere else: should a DSP not let programs see its timer, only the profile fails. */
static u8 *keep_time(const struct layer *layer, u8 *kept) {
  (void)layer;
  u32 ticks;
  __asm__ volatile("%0 = c30" : "=r"(ticks) : : "memory"); /* UTIMERLO */
  return copy(kept, (const u8 *)&ticks, sizeof ticks);
}

static s32 infer(u32 method, u32 reports, const union argument *args) {
  u32 outputs = total(network.output, network.outputs);
  u32 answer = method == RUN ? outputs : method == TRACE ? traced() + outputs : 4 * (network.layers + 1);
  u32 report[3] = {~0u, ~0u, 1};
  if (args[1].buffer.bytes != total(network.input, network.inputs)) return BAD_PARAMETER;
  if (reports && args[2].buffer.bytes != sizeof report) return BAD_PARAMETER;
  if (args[2 + reports].buffer.bytes != answer) return BAD_PARAMETER;
  u8 *to = args[2 + reports].buffer.data;
  u64 start = now();
  u32 locked = lock_hvx(FOUND(qurt_hvx_lock));
  if (method == PROFILE) {
    compute(args[1].buffer.data, keep_time(0, to), keep_time);
  } else {
    report[2] = compute(args[1].buffer.data, to, method == TRACE ? keep_output : 0);
    for (u32 i = 0; i < network.outputs; i++)
      kept = copy(kept, network.arena + network.output[i].offset, network.output[i].bytes);
  }
  unlock_hvx(locked);
  u64 spent = now() - start;
  if (FOUND(HAP_perf_get_time_us)) report[0] = (u32)spent, report[1] = (u32)(spent >> 32);
  if (reports) memcpy(args[2].buffer.data, report, sizeof report);
  return 0;
}

static s32 close(void) {
  end_second();
  if (voted) vote(0);
  return 0;
}

s32 towline_skel_handle_invoke(u64 handle, u32 scalars, union argument *args) {
  (void)handle; /* one network per object, so that there is nothing to tell apart */
  switch (scalars) {
    case OPEN << 24 | 2 << 16 | 1: args[2].handle = 1; return 0;
    case CLOSE << 24 | 1 << 4: return close();
    case LOAD << 24 | 2 << 16: return load(args);
    case RUN << 24 | 2 << 16 | 1 << 8:
    case TRACE << 24 | 2 << 16 | 1 << 8:
    case PROFILE << 24 | 2 << 16 | 1 << 8: return infer(scalars >> 24, 0, args);
    case RUN << 24 | 2 << 16 | 2 << 8: return infer(RUN, 1, args);
    case CONTEXTS << 24 | 2 << 16 | 1 << 8: return set_contexts(args);
    case CLOCK << 24 | 1 << 16 | 1 << 8: return set_clock(args);
    default: return UNSUPPORTED;
  }
}
