/* The network as a shared object that a FastRPC process on the DSP loads: what runtime.c is for qemu.
 *
 * The DSP's loader looks the one exported function up by the name in the module's URI
 * (fastrpc/domain.py) and calls it with the scalars of a call (method << 24 | inputs << 16 | outputs << 8 |
 * handles) and its buffers, laid out as qaic would: first input the lengths in words, first output none here.
 *   0 open     uri                 -> handle
 *   1 close    handle
 *   2 load     weights
 *   3 run      inputs              -> outputs
 *   4 trace    inputs              -> every layer's output, then the outputs
 *   5 profile  inputs              -> the 19.2 MHz timer, a word at the start and one after each layer
 * Inputs and outputs are the graph's, one after the other. Nothing is imported: a symbol that some DSP image
 * lacks would keep the whole object from loading. It votes for no clock either; docs/phone.md says so.
 */
#include "kernels.h"

enum { OPEN, CLOSE, LOAD, RUN, TRACE, PROFILE };
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
  copy(network.weights, args[1].buffer.data, network.weights_bytes);
  return 0;
}

/* Every layer in turn; `after` may keep something of it, and moves the end of what was kept. */
static u8 *each_layer(const u8 *inputs, u8 *kept, u8 *(*after)(const struct layer *, u8 *)) {
  for (u32 i = 0; i < network.inputs; i++) {
    copy(network.arena + network.input[i].offset, inputs, network.input[i].bytes);
    inputs += network.input[i].bytes;
  }
  struct context context = {network.arena, network.weights, 0, 1};
  for (u32 i = 0; i < network.layers; i++) {
    const struct layer *layer = &network.layer[i];
    for (u32 k = layer->first; k < layer->first + layer->calls; k++)
      network.call[k].kernel(network.call[k].descriptor, &context);
    kept = after(layer, kept);
  }
  return kept;
}

static u8 *keep_nothing(const struct layer *layer, u8 *kept) {
  (void)layer;
  return kept;
}

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

static s32 infer(u32 method, const union argument *args) {
  u32 outputs = total(network.output, network.outputs);
  u32 answer = method == RUN ? outputs : method == TRACE ? traced() + outputs : 4 * (network.layers + 1);
  if (args[1].buffer.bytes != total(network.input, network.inputs)) return BAD_PARAMETER;
  if (args[2].buffer.bytes != answer) return BAD_PARAMETER;
  const u8 *inputs = args[1].buffer.data;
  u8 *kept = args[2].buffer.data;
  if (method == PROFILE) {
    each_layer(inputs, keep_time(0, kept), keep_time);
    return 0;
  }
  kept = each_layer(inputs, kept, method == TRACE ? keep_output : keep_nothing);
  for (u32 i = 0; i < network.outputs; i++)
    kept = copy(kept, network.arena + network.output[i].offset, network.output[i].bytes);
  return 0;
}

s32 towline_skel_handle_invoke(u64 handle, u32 scalars, union argument *args) {
  (void)handle; /* one network per object, so that there is nothing to tell apart */
  switch (scalars) {
    case OPEN << 24 | 2 << 16 | 1: args[2].handle = 1; return 0;
    case CLOSE << 24 | 1 << 4: return 0;
    case LOAD << 24 | 2 << 16: return load(args);
    case RUN << 24 | 2 << 16 | 1 << 8:
    case TRACE << 24 | 2 << 16 | 1 << 8:
    case PROFILE << 24 | 2 << 16 | 1 << 8: return infer(scalars >> 24, args);
    default: return UNSUPPORTED;
  }
}
