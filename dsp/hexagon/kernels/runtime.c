/* The network as a process: weights come in on standard input, then commands; answers go to standard output.
 *
 * Framing (little-endian words, host side in session.py). First the host sends the weights, their length before
 * them; then each command is one word:
 *   'R' inputs            run         -> counters, outputs
 *   'T' inputs            trace       -> for every layer its output's bytes; then outputs
 *   'B' inputs            the same, every call in two halves, the second half first
 *   'P' inputs            profile     -> for every layer: counters alone, counters of half 0, of half 1
 *   'C' bytes, schedule   contexts    -> a word: 2, or 1 if there is no second thread; 0 and the end if the
 *                                        schedule is another program's
 *   'r' inputs            run by both contexts   -> outputs
 *   't' inputs            trace by both contexts -> as 'T'; they meet after every layer, too
 *   'O' word              order       -> nothing; of two contexts, see take_turn
 *   'F' word              fill the arena and its margins with the word's low byte -> nothing
 *   'D'                   dump        -> margin, arena, margin
 * Counters are packets, instructions and HVX instructions, three words. End of input ends the process, so it
 * never outlives its parent. System calls are Linux's generic ones, by trap0.
 */
#include "kernels.h"

enum { SYS_READ = 63, SYS_WRITE = 64, SYS_EXIT_GROUP = 94, SYS_FUTEX = 98, SYS_CLONE = 220 };

static s32 system_call(s32 number, s32 a, s32 b, s32 c) {
  register s32 r0 __asm__("r0") = a;
  register s32 r1 __asm__("r1") = b;
  register s32 r2 __asm__("r2") = c;
  register s32 r3 __asm__("r3") = 0; /* a futex's timeout: none */
  register s32 r6 __asm__("r6") = number;
  __asm__ volatile("trap0(#1)" : "+r"(r0) : "r"(r1), "r"(r2), "r"(r3), "r"(r6) : "memory");
  return r0;
}

static void leave(s32 status) {
  for (;;) system_call(SYS_EXIT_GROUP, status, 0, 0);
}

enum { FUTEX_WAIT_PRIVATE = 128, FUTEX_WAKE_PRIVATE };

static void sleep_while(u32 *word, u32 value) {
  system_call(SYS_FUTEX, (s32)word, FUTEX_WAIT_PRIVATE, (s32)value);
}

static void wake(u32 *word) { system_call(SYS_FUTEX, (s32)word, FUTEX_WAKE_PRIVATE, 1); }

static void take_turn(u32 part);

#include "entry/contexts.h"

/* 0: both contexts run at once. Else one of the two runs up to the next meeting before the other begins, which
 * shows what lacks a meeting: 1 the first, 2 the second, and any other number is the seed of a random choice. */
static u32 order;

static void take_turn(u32 part) {
  u32 second = order == 1 ? 1 : order == 2 ? 0 : (order ^ meetings) * 2654435761u >> 31;
  if (order && part == second)
    while (!look(&arrived)) sleep_while(&arrived, 0);
}

static void receive(void *buffer, u32 bytes) {
  for (u8 *p = buffer; bytes;) {
    s32 n = system_call(SYS_READ, 0, (s32)p, (s32)bytes);
    if (n <= 0) leave(n != 0);
    p += n, bytes -= (u32)n;
  }
}

static void send(const void *buffer, u32 bytes) {
  for (const u8 *p = buffer; bytes;) {
    s32 n = system_call(SYS_WRITE, 1, (s32)p, (s32)bytes);
    if (n <= 0) leave(1);
    p += n, bytes -= (u32)n;
  }
}

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

struct counters {
  u32 packets, instructions, hvx_instructions;
};

/* C20, C21, C22: no assembler name for a user-mode read, hence the opcodes. */
#define COUNTER(opcode)                                                   \
  ({                                                                      \
    register u32 value __asm__("r0");                                     \
    __asm__ volatile(".word " #opcode : "=r"(value) : : "memory");        \
    value;                                                                \
  })

static struct counters counters(void) {
  return (struct counters){COUNTER(0x6a14c000), COUNTER(0x6a15c000), COUNTER(0x6a16c000)};
}

static struct counters minus(struct counters a, struct counters b) {
  return (struct counters){a.packets - b.packets, a.instructions - b.instructions,
                           a.hvx_instructions - b.hvx_instructions};
}

static struct counters plus(struct counters a, struct counters b) {
  return (struct counters){a.packets + b.packets, a.instructions + b.instructions,
                           a.hvx_instructions + b.hvx_instructions};
}

/* What reading the counters twice costs by itself. */
static struct counters reading;

static __attribute__((noinline)) struct counters since(struct counters start) {
  return minus(minus(counters(), start), reading);
}

static __attribute__((noinline)) void run_call(const struct call *call, u32 part, u32 parts) {
  struct context context = {network.arena, network.weights, part, parts};
  call->kernel(call->descriptor, &context);
}

static __attribute__((noinline)) void run_layer(const struct layer *layer) {
  for (u32 i = 0; i < layer->calls; i++) run_call(&network.call[layer->first + i], 0, 1);
}

/* As an inference has it; the counts of a profile are the kernels'. */
static __attribute__((noinline)) void run_layer_ahead(const struct layer *layer) {
  for (u32 k = layer->first; k < layer->first + layer->calls; k++) fetch_ahead(k), run_call(&network.call[k], 0, 1);
}

static void receive_inputs(void) {
  for (u32 i = 0; i < network.inputs; i++) receive(network.arena + network.input[i].offset, network.input[i].bytes);
}

static void send_outputs(void) {
  for (u32 i = 0; i < network.outputs; i++) send(network.arena + network.output[i].offset, network.output[i].bytes);
}

/* Not inlined, so that what else is in this file does not change the packets of this loop. */
static __attribute__((noinline)) void run(void) {
  receive_inputs();
  struct counters start = counters();
#pragma clang loop unroll_count(16)
  for (u32 i = 0; i < network.layers; i++) run_layer_ahead(&network.layer[i]);
  struct counters spent = since(start);
  send(&spent, sizeof spent);
  send_outputs();
}

static void run_layer_backwards(const struct layer *layer) {
  for (u32 i = 0; i < layer->calls; i++) {
    run_call(&network.call[layer->first + i], 1, 2);
    run_call(&network.call[layer->first + i], 0, 2);
  }
}

static void trace(void (*run_one)(const struct layer *)) {
  receive_inputs();
  for (u32 i = 0; i < network.layers; i++) {
    run_one(&network.layer[i]);
    send(network.arena + network.layer[i].trace, network.layer[i].trace_bytes);
  }
  send_outputs();
}

/* Each layer three times on the same data: whole, then call by call in two halves, as two contexts that meet
 * after every call would run it. */
static void profile(void) {
  receive_inputs();
  for (u32 i = 0; i < network.layers; i++) {
    const struct layer *layer = &network.layer[i];
    struct counters spent[3] = {{0, 0, 0}, {0, 0, 0}, {0, 0, 0}};
    struct counters start = counters();
    run_layer(layer);
    spent[0] = since(start);
    for (u32 k = 0; k < layer->calls; k++)
      for (u32 part = 0; part < 2; part++) {
        start = counters();
        run_call(&network.call[layer->first + k], part, 2);
        spent[1 + part] = plus(spent[1 + part], since(start));
      }
    send(spent, sizeof spent);
  }
}

/* The second context: whatever the first one begins, for as long as there is the process. */
static __attribute__((used)) void second_context(void) {
  for (;;) {
    meet(1);
    compute_part(1, 2);
    meet(1);
  }
}

/* A thread with this stack; 0 where there can be none. CLONE_VM, FS, FILES, SIGHAND, THREAD and SYSVSEM. */
static __attribute__((noinline)) u32 start_second(u8 *stack_end) {
  register s32 r0 __asm__("r0") = 0x50f00;
  register s32 r1 __asm__("r1") = (s32)stack_end;
  register s32 r2 __asm__("r2") = 0;
  register s32 r3 __asm__("r3") = 0;
  register s32 r4 __asm__("r4") = 0;
  register s32 r6 __asm__("r6") = SYS_CLONE;
  __asm__ volatile("trap0(#1)\n"
                   "{ p0 = cmp.eq(r0,#0); if (!p0.new) jump:nt 1f }\n"
                   "call second_context\n"
                   "1:"
                   : "+r"(r0)
                   : "r"(r1), "r"(r2), "r"(r3), "r"(r4), "r"(r6)
                   : "memory", "p0", "r31");
  return r0 > 0;
}

static void set_contexts(void) {
  static u8 stack[STACK_BYTES] __attribute__((aligned(128)));
  static u32 started;
  u32 bytes, refused = 0;
  receive(&bytes, sizeof bytes);
  if (bytes != schedule_bytes) send(&refused, sizeof refused), leave(0);
  receive(schedule, schedule_bytes);
  if (!started) started = start_second(stack + STACK_BYTES);
  u32 contexts = 1 + started;
  send(&contexts, sizeof contexts);
}

static u8 *send_layer(const struct layer *layer, u8 *nothing) {
  send(network.arena + layer->trace, layer->trace_bytes);
  return nothing;
}

static void run_on_both(u8 *(*after)(const struct layer *, u8 *)) {
  receive_inputs();
  after_layer = after;
  meet(0);
  compute_part(0, 2);
  meet(0);
  send_outputs();
}

static void fill_arena(void) {
  u32 word;
  receive(&word, sizeof word);
  memset(network.arena - network.margin, (int)word, network.arena_bytes + 2 * network.margin);
}

void _start(void) {
  u32 weights_bytes;
  receive(&weights_bytes, sizeof weights_bytes);
  if (weights_bytes != network.weights_bytes) leave(3);
  receive(network.weights, network.weights_bytes);
  struct counters start = counters();
  reading = since(start);
  for (;;) {
    u32 command;
    receive(&command, sizeof command);
    switch (command) {
      case 'R': run(); break;
      case 'T': trace(run_layer); break;
      case 'B': trace(run_layer_backwards); break;
      case 'P': profile(); break;
      case 'C': set_contexts(); break;
      case 'r': run_on_both(0); break;
      case 't': run_on_both(send_layer); break;
      case 'O': receive(&order, sizeof order); break;
      case 'F': fill_arena(); break;
      case 'D': send(network.arena - network.margin, network.arena_bytes + 2 * network.margin); break;
      default: leave(2);
    }
  }
}
