/* A DSP's side of FastRPC for qemu-hexagon: a loader of shared objects, and calls into them.
 *
 * On standard input, little-endian words:
 *   'L' bytes, object            load  -> 0, or why not
 *   'F' bytes, name              find a symbol -> its address, 0 if there is none
 *   'C' address, handle (2 words), scalars, then for every buffer its bytes, and an input's content
 *                                call  -> result; outputs; for every handle that comes out two words
 * It knows nothing of what is loaded, and takes only what a plain loader would: position-independent
 * segments, relocations in writable ones, no symbol from elsewhere.
 */
typedef unsigned char u8;
typedef unsigned short u16;
typedef int s32;
typedef unsigned u32;
typedef unsigned long long u64;

enum { SYS_READ = 63, SYS_WRITE = 64, SYS_EXIT = 93, SYS_MMAP = 222 };

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
  for (;;) call6(SYS_EXIT, status, 0, 0, 0, 0, 0);
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
enum { R_HEX_RELATIVE = 35 };
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
  answer((u32)((s32(*)(u64, u32, union argument *))address)(handle, scalars, arguments));
  for (u32 i = inputs; i < inputs + outputs; i++) send(arguments[i].buffer.data, arguments[i].buffer.bytes);
  send(handles + in_handles, 8 * out_handles);
}

void _start(void) {
  for (;;) switch (word()) {
      case 'L': answer(load()); break;
      case 'F': answer(find()); break;
      case 'C': call(); break;
      default: leave(2);
    }
}
