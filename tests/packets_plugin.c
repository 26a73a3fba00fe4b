/* A plugin of qemu-user (its plugin API, version 1) that writes what a program executes, in order, as words:
 * the address of each packet, then for each line of 128 bytes that it loads (0x80000000) or stores (0xc0000000) the
 * line's number with these bits. Only what is used of the API is declared: Debian 12 ships no header. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum { NO_REGISTERS = 0, LOADS_AND_STORES = 3 };
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t, void (*)(uint64_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, void (*)(unsigned, void *), int, void *);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *, void (*)(unsigned, uint32_t, uint64_t, void *), int,
                                      int, void *);
void qemu_plugin_register_atexit_cb(uint64_t, void (*)(uint64_t, void *), void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
bool qemu_plugin_mem_is_store(uint32_t);

int qemu_plugin_version = 1;

static FILE *out;
static uint32_t last;

static void put(uint32_t word) {
  if (word == last) return; /* a vector is loaded in many pieces */
  last = word;
  fwrite(&word, sizeof word, 1, out);
}

static void packet(unsigned cpu, void *address) {
  (void)cpu;
  last = 0;
  put((uint32_t)(uintptr_t)address);
}

static void memory(unsigned cpu, uint32_t what, uint64_t address, void *unused) {
  (void)cpu, (void)unused;
  put((qemu_plugin_mem_is_store(what) ? 0xc0000000u : 0x80000000u) | (uint32_t)address >> 7);
}

static void translated(uint64_t id, struct qemu_plugin_tb *block) {
  (void)id;
  for (size_t i = 0; i < qemu_plugin_tb_n_insns(block); i++) {
    struct qemu_plugin_insn *one = qemu_plugin_tb_get_insn(block, i);
    void *address = (void *)(uintptr_t)qemu_plugin_insn_vaddr(one);
    qemu_plugin_register_vcpu_insn_exec_cb(one, packet, NO_REGISTERS, address);
    qemu_plugin_register_vcpu_mem_cb(one, memory, NO_REGISTERS, LOADS_AND_STORES, NULL);
  }
}

static void finish(uint64_t id, void *unused) {
  (void)id, (void)unused;
  fclose(out);
}

int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv) {
  (void)info;
  if (argc != 1 || strncmp(argv[0], "out=", 4) || !(out = fopen(argv[0] + 4, "wb"))) return 1;
  qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
  qemu_plugin_register_atexit_cb(id, finish, NULL);
  return 0;
}
