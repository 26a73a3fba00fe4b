/* See waves.h: workgroups, waves, barriers, and the way between their stacks. */
#include "waves_internal.h"

#define HIDDEN __attribute__((visibility("hidden")))

/* Save the callee-saved registers here, its stack pointer in `*from`, and go on where `to` was saved. */
HIDDEN void waves_switch(void **from, void *to);
/* Where a new stack begins: calls one kept register with another as the argument. */
HIDDEN void waves_begin(void);

#if defined(__x86_64__)
__asm__(".text\n"
        ".hidden waves_switch\n.globl waves_switch\n.type waves_switch, @function\n"
        "waves_switch:\n"
        "  push %rbp\n  push %rbx\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
        "  mov %rsp, (%rdi)\n"
        "  mov %rsi, %rsp\n"
        "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbx\n  pop %rbp\n"
        "  ret\n"
        ".hidden waves_begin\n.globl waves_begin\n.type waves_begin, @function\n"
        "waves_begin:\n"
        "  mov %rbx, %rdi\n"
        "  call *%r12\n"
        "  ud2\n");
enum { SAVED = 7, SAVED_FUNCTION = 3, SAVED_ARGUMENT = 4, SAVED_RETURN = 6 };
#elif defined(__aarch64__)
__asm__(".text\n"
        ".hidden waves_switch\n.globl waves_switch\n.type waves_switch, %function\n"
        "waves_switch:\n"
        "  sub sp, sp, #160\n"
        "  stp x19, x20, [sp]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n"
        "  stp x25, x26, [sp, #48]\n  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n"
        "  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n  stp d12, d13, [sp, #128]\n"
        "  stp d14, d15, [sp, #144]\n"
        "  mov x9, sp\n  str x9, [x0]\n  mov sp, x1\n"
        "  ldp x19, x20, [sp]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n"
        "  ldp x25, x26, [sp, #48]\n  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n"
        "  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n  ldp d12, d13, [sp, #128]\n"
        "  ldp d14, d15, [sp, #144]\n"
        "  add sp, sp, #160\n  ret\n"
        ".hidden waves_begin\n.globl waves_begin\n.type waves_begin, %function\n"
        "waves_begin:\n"
        "  mov x0, x19\n  blr x20\n  brk #1\n");
enum { SAVED = 20, SAVED_FUNCTION = 1, SAVED_ARGUMENT = 0, SAVED_RETURN = 11 };
#else
#error "waves.c cannot switch stacks on this processor"
#endif

_Static_assert(sizeof(struct waves_wave) % 64 == 0, "vgpr is loaded as vectors");

/* Numbers in the scalar operand space. */
enum { TTMP = 108, EXEC = 126 };

void waves_ask(struct waves_run *run, int request)
{
    run->request = request;
    waves_switch(&run->current->stack, run->main_stack);
}

void waves_stop(struct waves_run *run, int outcome, int64_t pc, uint64_t value)
{
    run->outcome = outcome;
    run->fault_pc = pc;
    run->fault_address = value;
    waves_ask(run, REQUEST_STOP);
}

static void complete_barrier(struct waves_run *run)
{
    if (run->signalled == run->alive) {
        run->signalled = 0;
        run->phase++;
    }
}

void waves_signal(struct waves_run *run)
{
    run->current->phase = run->phase;
    run->signalled++;
    complete_barrier(run);
}

void waves_wait(struct waves_run *run, int64_t pc)
{
    while (run->current->phase == run->phase) {
        run->fault_pc = pc;
        waves_ask(run, REQUEST_WAIT);
    }
}

/* First function on a wave's stack. */
static void wave_main(struct waves_wave *wave)
{
    struct waves_run *run = wave->run;

    (wave->sgpr[EXEC] == 0xFFFFFFFFu ? run->full : run->partial)(wave, run);
    wave->alive = 0;
    run->alive--;
    if (run->alive)
        complete_barrier(run);
    waves_ask(run, REQUEST_NOTHING);
}

static void prepare_stack(struct waves_run *run, struct waves_wave *wave)
{
    uint8_t *top = run->stacks + (uint64_t)(wave->number + 1) * WAVES_STACK;
    void **saved = (void **)top - SAVED;

    for (int at = 0; at < SAVED; at++)
        saved[at] = 0;
    saved[SAVED_FUNCTION] = (void *)wave_main;
    saved[SAVED_ARGUMENT] = wave;
    saved[SAVED_RETURN] = (void *)waves_begin;
    wave->stack = saved;
}

/* What is the same in every workgroup. Translated code does not write registers back, so once is enough. */
static void set_wave(struct waves_run *run, struct waves_wave *wave, uint32_t number, uint32_t total)
{
    uint32_t first = number * WAVES_LANES;
    uint32_t lanes = total - first < WAVES_LANES ? total - first : WAVES_LANES;

    wave->number = number;
    wave->run = run;
    wave->scc = 0;
    wave->scratch = run->scratch + number * run->scratch_wave;
    for (uint32_t at = 0; at < run->vgprs; at++)
        for (uint32_t lane = 0; lane < WAVES_LANES; lane++)
            wave->vgpr[at][lane] = run->garbage;
    for (uint32_t lane = 0; lane < WAVES_LANES; lane++) {
        uint32_t item = first + lane;
        uint32_t x = item % run->threads[0], rest = item / run->threads[0];
        uint32_t y = rest % run->threads[1], z = rest / run->threads[1];

        wave->vgpr[0][lane] = x | (run->item_ids >= 1 ? y << 10 : 0) | (run->item_ids >= 2 ? z << 20 : 0);
    }
    for (uint32_t at = 0; at < WAVES_SGPRS; at++)
        wave->sgpr[at] = at < run->user_count ? run->user[at] : run->garbage;
    wave->sgpr[EXEC] = lanes == WAVES_LANES ? 0xFFFFFFFFu : (1u << lanes) - 1;
    wave->sgpr[EXEC + 1] = 0;
}

static void set_group(struct waves_run *run, struct waves_wave *wave, const uint32_t group[3], uint32_t count)
{
    uint32_t next = run->user_count;

    if (run->generation >= 12) {
        wave->sgpr[TTMP + 9] = group[0];
        wave->sgpr[TTMP + 7] = group[1] | group[2] << 16;
        wave->sgpr[TTMP + 8] = wave->number << 25;
        return;
    }
    for (int axis = 0; axis < 3; axis++)
        if (run->group_ids >> axis & 1)
            wave->sgpr[next++] = group[axis];
    if (run->group_ids & 8)
        wave->sgpr[next] = (uint32_t)(wave->number == 0) << 31 | count;
}

/* Let a wave run until it asks for something that only another wave can give. 0: the dispatch is over. */
static int advance(struct waves_run *run, struct waves_wave *wave)
{
    run->current = wave;
    for (;;) {
        waves_switch(&run->main_stack, wave->stack);
        if (run->request != REQUEST_TRANSLATE)
            return run->request != REQUEST_STOP;
        if (run->translate(run->fault_address, (int)run->fault_write)) {
            if (run->outcome == WAVES_DONE)
                run->outcome = WAVES_PAGE_FAULT;
            return 0;
        }
    }
}

static int run_group(struct waves_run *run, const uint32_t group[3], uint32_t count)
{
    run->alive = count;
    run->signalled = 0;
    run->phase = 1;
    run->waves_started += count;
    for (uint32_t number = 0; number < count; number++) {
        struct waves_wave *wave = &run->waves[number];

        wave->alive = 1;
        wave->phase = run->phase;
        set_group(run, wave, group, count);
        prepare_stack(run, wave);
    }
    while (run->alive) {
        uint32_t alive = run->alive;
        uint64_t phase = run->phase;

        for (uint32_t turn = 0; turn < count; turn++) {
            struct waves_wave *wave = &run->waves[run->backwards ? count - 1 - turn : turn];

            if (wave->alive && !advance(run, wave))
                return 0;
        }
        if (run->alive == alive && run->phase == phase) {
            run->outcome = WAVES_STUCK;
            return 0;
        }
    }
    return 1;
}

static void run_groups(struct waves_run *run, uint32_t count)
{
    uint64_t groups = (uint64_t)run->groups[0] * run->groups[1] * run->groups[2];

    for (uint64_t turn = 0; turn < groups; turn++) {
        uint64_t place = run->backwards ? groups - 1 - turn : turn;
        uint32_t group[3];

        for (int axis = 0; axis < 3; axis++) {
            group[axis] = (uint32_t)(place % run->groups[axis]);
            place /= run->groups[axis];
        }
        if (*(volatile uint64_t *)&run->least != 1 || !run_group(run, group, count))
            return;
    }
}

/* Ctrl-C must end a dispatch, but Python sees a signal only when we return. The C library's structure begins
 * with the handler everywhere, and the rest of it stays as it is. */
union action {
    void (*handler)(int number, void *information, void *context);
    uint64_t room[64];
};
int sigaction(int number, const union action *fresh, union action *old);
enum { SIGINT = 2 };

static struct waves_run *volatile interruptible;
static union action before;

/* The earlier handler is restored before it is called: LLVM's, which a compiler in the process may have
 * installed, removes itself and raises the signal once more, without end if it were restored afterwards. */
static void interrupt(int number, void *information, void *context)
{
    *(volatile uint64_t *)&interruptible->least = ~(uint64_t)0;
    interruptible = 0;
    sigaction(SIGINT, &before, 0);
    before.handler(number, information, context);
}

/* Whether there was a handler, which ours now calls. */
static int listen(struct waves_run *run)
{
    union action ours;

    if (interruptible || sigaction(SIGINT, 0, &ours) || (uint64_t)ours.handler <= 1) /* default, or ignored */
        return 0;
    interruptible = run;
    before = ours;
    ours.handler = interrupt;
    sigaction(SIGINT, &ours, 0);
    return 1;
}

int waves_dispatch(struct waves_run *run)
{
    uint32_t total = run->threads[0] * run->threads[1] * run->threads[2];
    uint32_t count = (total + WAVES_LANES - 1) / WAVES_LANES;
    int listening;

    run->outcome = WAVES_DONE;
    run->least = 1;
    listening = listen(run);
    for (uint32_t number = 0; number < count; number++)
        set_wave(run, &run->waves[number], number, total);
    run_groups(run, count);
    if (listening && interruptible == run) { /* none came */
        sigaction(SIGINT, &before, 0);
        interruptible = 0;
    }
    if (run->least != 1) {
        run->outcome = WAVES_INTERRUPTED;
        waves_take_back(run);
    }
    return run->outcome;
}
