#include "bytes.h"

/* The first parameter of a function comes in DPTR; others are at _name_PARM_2. Results are returned in DPTR,
 * and further in B and A. */

u16 load16(volatile __xdata u8 *at) __naked
{
    (void)at;
    __asm
        movx    a,@dptr
        mov     r7,a
        inc     dptr
        movx    a,@dptr
        mov     dph,a
        mov     dpl,r7
        ret
    __endasm;
}

u16 load16_reversed(volatile __xdata u8 *at) __naked
{
    (void)at;
    __asm
        movx    a,@dptr
        mov     r7,a
        inc     dptr
        movx    a,@dptr
        mov     dph,r7
        mov     dpl,a
        ret
    __endasm;
}

u32 load32(volatile __xdata u8 *at) __naked
{
    (void)at;
    __asm
        movx    a,@dptr
        mov     r6,a
        inc     dptr
        movx    a,@dptr
        mov     r7,a
        inc     dptr
        movx    a,@dptr
        mov     b,a
        inc     dptr
        movx    a,@dptr
        mov     dph,r7
        mov     dpl,r6
        ret
    __endasm;
}

/* R0 points to the registers R4 to R7 of bank 0 in turn: twice to load and to add, once to store. */
void add32(volatile __xdata u8 *at) __naked
{
    (void)at;
    __asm
        mov     r2,dpl
        mov     r3,dph
        mov     r0,#4
        mov     r1,#4
00001$:
        movx    a,@dptr
        mov     @r0,a
        inc     dptr
        inc     r0
        djnz    r1,00001$
        mov     r0,#4
        mov     r1,#4
        clr     c
00002$:
        movx    a,@dptr
        addc    a,@r0
        mov     @r0,a
        inc     dptr
        inc     r0
        djnz    r1,00002$
        mov     dpl,r2
        mov     dph,r3
        mov     r0,#4
        mov     r1,#4
00003$:
        mov     a,@r0
        movx    @dptr,a
        inc     dptr
        inc     r0
        djnz    r1,00003$
        ret
    __endasm;
}

void copy_bytes(volatile __xdata u8 *to, volatile __xdata u8 *from, u8 count) __naked
{
    (void)to, (void)from, (void)count;
    __asm
        mov     r2,dpl
        mov     r3,dph
        mov     r4,_copy_bytes_PARM_2
        mov     r5,(_copy_bytes_PARM_2 + 1)
        mov     r7,_copy_bytes_PARM_3
00001$:
        mov     dpl,r4
        mov     dph,r5
        movx    a,@dptr
        inc     dptr
        mov     r4,dpl
        mov     r5,dph
        mov     dpl,r2
        mov     dph,r3
        movx    @dptr,a
        inc     dptr
        mov     r2,dpl
        mov     r3,dph
        djnz    r7,00001$
        ret
    __endasm;
}
