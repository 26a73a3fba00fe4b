/* What a Cortex-M needs before and beside a program without an operating system: the vector table, the first
 * instructions, and time. Files and text go to the debugger or emulator by semihosting (newlib's rdimon). For a
 * board of your own set the places in board.ld, and leave out semihosting where nothing is attached. */
#include <stdint.h>
#include <stdlib.h>

extern uint32_t stack_top, data_stored, data_begin, data_end, __bss_start__, __bss_end__;
extern void initialise_monitor_handles(void), __libc_init_array(void); /* newlib's */
extern int main(int, char **);

#define COPROCESSORS (*(volatile uint32_t *)0xE000ED88)  /* CPACR */
#define CONFIGURATION (*(volatile uint32_t *)0xE000ED14) /* CCR */
#define SYSTICK ((volatile uint32_t *)0xE000E010)        /* CSR, RVR, CVR */

enum { SYS_GET_CMDLINE = 0x15 };

static int semihosting(int operation, void *argument) {
  register int r0 __asm__("r0") = operation;
  register void *r1 __asm__("r1") = argument;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}

void reset(void) {
  for (uint32_t *from = &data_stored, *to = &data_begin; to < &data_end;) *to++ = *from++;
  for (uint32_t *to = &__bss_start__; to < &__bss_end__;) *to++ = 0;
  COPROCESSORS |= 0xF << 20; /* floats, and Helium */
  CONFIGURATION |= 1 << 19;  /* loops without branches (M55); no effect elsewhere */
  SYSTICK[1] = 0xFFFFFF, SYSTICK[2] = 0, SYSTICK[0] = 5; /* by the processor's clock */
  __asm__ volatile("dsb\n isb");
  initialise_monitor_handles();
  __libc_init_array();
  static char line[256], *words[16];
  struct {
    char *text;
    uint32_t bytes;
  } command = {line, sizeof line};
  int count = 0;
  if (semihosting(SYS_GET_CMDLINE, &command) == 0)
    for (char *p = line; *p && count < 15;) {
      words[count++] = p;
      while (*p && *p != ' ') p++;
      if (*p) *p++ = 0;
    }
  exit(main(count, words));
}

static void fault(void) {
  for (;;) __asm__ volatile("bkpt 0");
}

__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    &stack_top, (const void *)reset, (const void *)fault, (const void *)fault,
    (const void *)fault, (const void *)fault, (const void *)fault, (const void *)fault,
};

/* Ticks of the processor's clock since the last call, of which there may be 2^24. */
uint32_t board_ticks(void) {
  static uint32_t before = 0xFFFFFF;
  uint32_t now = SYSTICK[2], passed = (before - now) & 0xFFFFFF;
  before = now;
  return passed;
}
