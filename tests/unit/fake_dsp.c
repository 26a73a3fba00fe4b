/* A DSP's side of FastRPC for qemu-hexagon: a loader of shared objects, and calls into them.
 *
 * On standard input, little-endian words:
 *   'L' bytes, object            load  -> 0, or why not
 *   'F' bytes, name              find a symbol -> its address, 0 if there is none
 *   'C' address, handle (2 words), scalars, then for every buffer its bytes, and an input's content
 *                                call  -> result; outputs; for every handle that comes out two words
 *   'H' bytes, name              hide: the image lacks a function -> 0
 *   'U' word                     units of HVX that are free; 2 at first
 *   'S'                          state -> words: threads begun, joined, HVX locks held, the most at a time, how
 *                                often a thread used HVX without one, power requests; then the last of those, 40 bytes
 * It knows nothing of what is loaded, and takes only what a plain loader would: position-independent
 * segments, relocations in writable ones, and from elsewhere only the functions below, if they are weak.
 */
typedef unsigned char u8;
typedef unsigned short u16;
typedef int s32;
typedef unsigned u32;
typedef unsigned long long u64;

enum { SYS_READ = 63, SYS_WRITE = 64, SYS_EXIT = 93, SYS_EXIT_GROUP = 94, SYS_FUTEX = 98, SYS_CLONE = 220, SYS_MMAP = 222 };

static s32 call6(s32 number, s32 a, s32 b, s32 c, s32 d, s32 e, s32 f) {
  register s32 r0 __asm__("r0") = a;
  register s32 r1 __asm__("r1") = b;
  register s32 r2 __asm__("r2") = c;
  register s32 r3 __asm__("r3") = d;
  register s32 r4 __asm__("r4") = e;
  register s32 r5 __asm__("r5") = f;
  register s32 r6 __asm__("r6") = number;
  __asm__ volatile("trap0(#1)" : "+r"(r0) : "r"(r1), "r"(r2), "r"(r3), "r"(r4), "r"(r5), "r"(r6) : "memory");
  return r0;
}

static void leave(s32 status) {
  for (;;) call6(SYS_EXIT_GROUP, status, 0, 0, 0, 0, 0);
}

static void receive(void *buffer, u32 bytes) {
  for (u8 *p = buffer; bytes;) {
    s32 n = call6(SYS_READ, 0, (s32)p, (s32)bytes, 0, 0, 0);
    if (n <= 0) leave(n != 0);
    p += n, bytes -= (u32)n;
  }
}

static void send(const void *buffer, u32 bytes) {
  for (const u8 *p = buffer; bytes;) {
    s32 n = call6(SYS_WRITE, 1, (s32)p, (s32)bytes, 0, 0, 0);
    if (n <= 0) leave(1);
    p += n, bytes -= (u32)n;
  }
}

static u32 word(void) {
  u32 value;
  receive(&value, sizeof value);
  return value;
}

static void answer(u32 value) { send(&value, sizeof value); }

static u8 *memory(u32 bytes) {
  s32 at = call6(SYS_MMAP, 0, (s32)bytes, 7, 0x22, -1, 0); /* private, anonymous; may be executed */
  if (at == -1) leave(4);
  return (u8 *)at;
}

void *memset(void *to, int value, u32 bytes) {
  for (volatile u8 *p = to; bytes--;) *p++ = (u8)value;
  return to;
}

void *memcpy(void *to, const void *from, u32 bytes) {
  volatile u8 *p = to;
  for (const u8 *q = from; bytes--;) *p++ = *q++;
  return to;
}

/* -- what an image has: QuRT and HAP, as their headers describe them -- */

struct attributes {
  char name[16];
  u8 tcb_partition, stid;
  u16 priority;
  u8 asid, bus_priority;
  u16 timetest;
  u32 stack_size;
  u8 *stack;
};

static struct {
  u32 begun, joined, locks, most, unlocked, requests;
  u8 request[40];
} state;

/* A thread without the lock has no HVX context (v65 and later). Here it has one: its registers hold a pattern, which any
 * use of HVX before the next lock, or the end of a call, destroys. An image without locks has HVX always. */
#define EACH(X)                                                                                                 \
  X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19) \
  X(20) X(21) X(22) X(23) X(24) X(25) X(26) X(27) X(28) X(29) X(30) X(31)
enum { PATTERN = 0x5ac30000, VECTORS = 32, WORDS = 32 };

static __attribute__((noinline)) void take_hvx_away(void) {
#define SET(n) "v" #n " = vsplat(%0)\n%0 = add(%0,#1)\n"
  u32 pattern = PATTERN;
  __asm__ volatile(EACH(SET) : "+r"(pattern) : : "memory");
}

static s32 hvx_lock(s32 mode);
static s32 hvx_unlock(void);
static void **of_image(const char *name);

static __attribute__((noinline)) void check_hvx_was_away(void) {
#define SAVE(n) "vmem(%0++#1) = v" #n "\n"
  u32 found[VECTORS][WORDS] __attribute__((aligned(128)));
  u8 *to = (u8 *)found;
  __asm__ volatile(EACH(SAVE) : "+r"(to) : : "memory");
  if (*of_image("qurt_hvx_lock") != hvx_lock || *of_image("qurt_hvx_unlock") != hvx_unlock) return;
  u32 wrong = 0;
  for (u32 i = 0; i < VECTORS; i++)
    for (u32 k = 0; k < WORDS; k++) wrong |= found[i][k] ^ (PATTERN + i);
  if (wrong) __atomic_add_fetch(&state.unlocked, 1, __ATOMIC_SEQ_CST);
}

static volatile u32 running; /* the thread's id; the kernel clears and wakes it at its end */
static void (*entry)(void *);
static void *entry_argument;

static __attribute__((used)) void thread(void) {
  take_hvx_away();
  entry(entry_argument);
  for (;;) call6(SYS_EXIT, 0, 0, 0, 0, 0, 0);
}

static s32 thread_create(u32 *id, const struct attributes *a, void (*function)(void *), void *argument) {
  if (running || !a->priority || a->priority > 254 || ((u32)a->stack & 7) || a->stack_size < 4096) return 1;
  entry = function, entry_argument = argument;
  *id = running = 77;
  register s32 r0 __asm__("r0") = 0x250f00; /* a thread of this process; CLONE_CHILD_CLEARTID */
  register s32 r1 __asm__("r1") = (s32)(a->stack + a->stack_size);
  register s32 r2 __asm__("r2") = 0;
  register s32 r3 __asm__("r3") = (s32)&running;
  register s32 r4 __asm__("r4") = 0;
  register s32 r6 __asm__("r6") = SYS_CLONE;
  __asm__ volatile("trap0(#1)\n"
                   "{ p0 = cmp.eq(r0,#0); if (!p0.new) jump:nt 1f }\n"
                   "call thread\n"
                   "1:"
                   : "+r"(r0)
                   : "r"(r1), "r"(r2), "r"(r3), "r"(r4), "r"(r6)
                   : "memory", "p0", "r31");
  if (r0 < 0) leave(7);
  state.begun++;
  return 0;
}

static s32 thread_join(u32 id, s32 *status) {
  if (id != 77) return 1;
  while (running) call6(SYS_FUTEX, (s32)&running, 0, 77, 0, 0, 0);
  state.joined++;
  *status = 0;
  return 0;
}

static u32 thread_id(void) { return 5; }
static s32 thread_priority(u32 id) { return id == 5 ? 100 : -1; }
static void thread_exit(s32 status) { for (;;) call6(SYS_EXIT, status, 0, 0, 0, 0, 0); }
static s32 futex_wait(u32 *word, s32 value) { return call6(SYS_FUTEX, (s32)word, 0, value, 0, 0, 0); }
static s32 futex_wake(u32 *word, s32 count) { return call6(SYS_FUTEX, (s32)word, 1, count, 0, 0, 0); }

static u32 units = 2; /* of HVX that are free */

static s32 hvx_lock(s32 mode) {
  check_hvx_was_away();
  u32 held = __atomic_add_fetch(&state.locks, 1, __ATOMIC_SEQ_CST);
  if (held > state.most) state.most = held;
  return mode != 1;
}

static s32 hvx_try_lock(s32 mode) { return state.locks >= units || hvx_lock(mode); }

static s32 hvx_unlock(void) {
  take_hvx_away();
  __atomic_sub_fetch(&state.locks, 1, __ATOMIC_SEQ_CST);
  return 0;
}

static s32 power_set(void *client, const u8 *request) {
  if (!client || request[0] != 7) return 1;
  memcpy(state.request, request, sizeof state.request);
  state.requests++;
  return 0;
}

static u64 time_us(void) { /* a millisecond from one look to the next */
  static u64 time = (1ull << 32) - 500;
  return time += 1000;
}

static struct {
  const char *name;
  void *function;
} image[] = {
    {"qurt_thread_create", thread_create},
    {"qurt_thread_join", thread_join},
    {"qurt_thread_get_id", thread_id},
    {"qurt_thread_get_priority", thread_priority},
    {"qurt_thread_exit", thread_exit},
    {"qurt_futex_wait", futex_wait},
    {"qurt_futex_wake", futex_wake},
    {"qurt_hvx_lock", hvx_lock},
    {"qurt_hvx_try_lock", hvx_try_lock},
    {"qurt_hvx_unlock", hvx_unlock},
    {"HAP_power_set", power_set},
    {"HAP_perf_get_time_us", time_us},
};
enum { FUNCTIONS = sizeof image / sizeof *image };

static u32 same(const char *a, const char *b) {
  while (*a && *a == *b) a++, b++;
  return *a == *b;
}

static void **of_image(const char *name) {
  for (u32 i = 0; i < FUNCTIONS; i++)
    if (same(image[i].name, name)) return &image[i].function;
  leave(8); /* which no DSP has been seen to have */
  return 0;
}

/* -- loading -- */

struct elf {
  u8 ident[16];
  u16 type, machine;
  u32 version, entry, phoff, shoff, flags;
  u16 ehsize, phentsize, phnum, shentsize, shnum, shstrndx;
};
struct segment {
  u32 type, offset, vaddr, paddr, filesz, memsz, flags, align;
};
struct dynamic {
  s32 tag;
  u32 value;
};
struct symbol {
  u32 name, value, size;
  u8 info, other;
  u16 section;
};
struct rela {
  u32 offset, info;
  s32 addend;
};

enum { ET_DYN = 3, EM_HEXAGON = 164, PT_LOAD = 1, PT_DYNAMIC = 2, PF_WRITABLE = 2 };
enum { DT_NEEDED = 1, DT_HASH = 4, DT_STRTAB = 5, DT_SYMTAB = 6, DT_RELA = 7, DT_RELASZ = 8, DT_JMPREL = 23 };
enum { R_HEX_GLOB_DAT = 33, R_HEX_RELATIVE = 35, STB_WEAK = 2 };
enum { NOT_AN_OBJECT = 1, NEEDS_ANOTHER, UNALIGNED, TEXT_RELOCATION, FOREIGN_SYMBOL };

static u8 *base;
static const struct symbol *symbols;
static const char *names;
static const u32 *hash;

static u32 load(void) {
  u32 bytes = word();
  u8 *file = memory(bytes + 4096);
  receive(file, bytes);
  const struct elf *elf = (const struct elf *)file;
  if (bytes < sizeof *elf || elf->type != ET_DYN || elf->machine != EM_HEXAGON) return NOT_AN_OBJECT;
  const struct segment *segments = (const struct segment *)(file + elf->phoff);
  u32 end = 0;
  const struct dynamic *dynamic = 0;
  for (u32 i = 0; i < elf->phnum; i++)
    if (segments[i].type == PT_LOAD && segments[i].vaddr + segments[i].memsz > end)
      end = segments[i].vaddr + segments[i].memsz;
  base = memory(end + 4096);
  for (u32 i = 0; i < elf->phnum; i++) {
    const struct segment *s = &segments[i];
    if (s->type == PT_DYNAMIC) dynamic = (const struct dynamic *)(base + s->vaddr);
    if (s->type != PT_LOAD) continue;
    if (s->vaddr & 4095) return UNALIGNED;
    memcpy(base + s->vaddr, file + s->offset, s->filesz);
  }
  if (!dynamic) return NOT_AN_OBJECT;
  const struct rela *relocations = 0;
  u32 count = 0;
  for (const struct dynamic *d = dynamic; d->tag; d++) {
    if (d->tag == DT_NEEDED) return NEEDS_ANOTHER;
    if (d->tag == DT_JMPREL) return FOREIGN_SYMBOL;
    if (d->tag == DT_HASH) hash = (const u32 *)(base + d->value);
    if (d->tag == DT_STRTAB) names = (const char *)(base + d->value);
    if (d->tag == DT_SYMTAB) symbols = (const struct symbol *)(base + d->value);
    if (d->tag == DT_RELA) relocations = (const struct rela *)(base + d->value);
    if (d->tag == DT_RELASZ) count = d->value / sizeof(struct rela);
  }
  for (u32 i = 0; i < count; i++) {
    const struct rela *r = &relocations[i];
    u32 writable = 0;
    for (u32 k = 0; k < elf->phnum; k++)
      if (segments[k].type == PT_LOAD && r->offset - segments[k].vaddr < segments[k].memsz)
        writable = segments[k].flags & PF_WRITABLE;
    if (!writable) return TEXT_RELOCATION;
    if ((r->info & 255) == R_HEX_GLOB_DAT) {
      const struct symbol *symbol = &symbols[r->info >> 8];
      if (symbol->section || symbol->info >> 4 != STB_WEAK) return FOREIGN_SYMBOL;
      *(u32 *)(base + r->offset) = (u32)*of_image(names + symbol->name);
      continue;
    }
    if ((r->info & 255) != R_HEX_RELATIVE) return FOREIGN_SYMBOL;
    *(u32 *)(base + r->offset) = (u32)base + (u32)r->addend;
  }
  return 0;
}

static u32 find(void) {
  char name[128];
  u32 bytes = word();
  if (bytes > sizeof name) leave(5);
  receive(name, bytes);
  for (u32 i = 1; hash && i < hash[1]; i++) {
    const char *candidate = names + symbols[i].name;
    u32 k = 0;
    while (k < bytes && candidate[k] == name[k]) k++;
    if (k == bytes && !candidate[k] && symbols[i].section) return (u32)base + symbols[i].value;
  }
  return 0;
}

static u32 hide(void) {
  char name[128] = {0};
  u32 bytes = word();
  if (bytes >= sizeof name) leave(5);
  receive(name, bytes);
  *of_image(name) = 0;
  return 0;
}

union argument {
  struct {
    u8 *data;
    u32 bytes;
  } buffer;
  u64 handle;
};

static u8 stock[96 << 20] __attribute__((aligned(128)));

static void call(void) {
  u32 address = word();
  u64 handle = word();
  handle |= (u64)word() << 32;
  u32 scalars = word();
  u32 inputs = scalars >> 16 & 255, outputs = scalars >> 8 & 255;
  u32 in_handles = scalars >> 4 & 15, out_handles = scalars & 15;
  static union argument arguments[512];
  u8 *next = stock;
  for (u32 i = 0; i < inputs + outputs; i++) {
    u32 bytes = word();
    next = (u8 *)(((u32)next + 127) & ~127u) + 8; /* aligned as FastRPC's own buffers may be: to 8 */
    if (bytes > sizeof stock || next + bytes > stock + sizeof stock) leave(6);
    arguments[i].buffer.data = next, arguments[i].buffer.bytes = bytes;
    if (i < inputs)
      receive(next, bytes);
    else
      memset(next, 0xa5, bytes);
    next += bytes;
  }
  union argument *handles = arguments + inputs + outputs;
  for (u32 i = 0; i < in_handles; i++) handles[i].handle = handle;
  take_hvx_away();
  u32 result = (u32)((s32(*)(u64, u32, union argument *))address)(handle, scalars, arguments);
  check_hvx_was_away();
  answer(result);
  for (u32 i = inputs; i < inputs + outputs; i++) send(arguments[i].buffer.data, arguments[i].buffer.bytes);
  send(handles + in_handles, 8 * out_handles);
}

void _start(void) {
  for (;;) switch (word()) {
      case 'L': answer(load()); break;
      case 'F': answer(find()); break;
      case 'C': call(); break;
      case 'H': answer(hide()); break;
      case 'U': units = word(); break;
      case 'S': send(&state, sizeof state); break;
      default: leave(2);
    }
}
