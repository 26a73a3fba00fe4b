#include "block.h"

#include "tlp.h"

volatile __xdata u8 *block_operation;
volatile __xdata u8 *block_place;
u8 block_step;
u8 block_first, block_second;
u8 block_misfit;

/* Registers by address, for the assembler. */
static volatile __xdata __at ((u16)&TLP_FMT_TYPE) u8 format;
static volatile __xdata __at ((u16)&TLP_BYTE_ENABLES) u8 enables;
static volatile __xdata __at ((u16)&TLP_ADDRESS_1) u8 address_1;
static volatile __xdata __at ((u16)&TLP_ADDRESS_0) u8 address_0;
static volatile __xdata __at ((u16)&TLP_ADDRESS_HIGH_3) u8 address_high_3;
static volatile __xdata __at ((u16)&TLP_ADDRESS_HIGH_0) u8 address_high_0;
static volatile __xdata __at ((u16)&TLP_DATA_3) u8 data_3;
static volatile __xdata __at ((u16)&TLP_COMPLETION_STATUS_HIGH) u8 completion_status;
static volatile __xdata __at ((u16)&TLP_STATUS) u8 status;
static volatile __xdata __at ((u16)&TLP_LAUNCH) u8 launch;
static volatile __xdata __at ((u16)BULK_OUT_BUFFER) u8 packet;

#define WIDE (TLP_FMT_TYPE_KIND_MWR64 - TLP_FMT_TYPE_KIND_MWR32)
#define STATUS_BITS (TLP_STATUS_ERROR + TLP_STATUS_COMPLETE + TLP_STATUS_SENT)
#define COMPLETE_BIT acc.1 /* TLP_STATUS_COMPLETE, when A holds TLP_STATUS */
#define FAILED 0xE0 /* TLP_COMPLETION_STATUS_STATUS in its upper byte */
_Static_assert(FAILED == HIGH(TLP_COMPLETION_STATUS_STATUS), "a fact has changed");
#define LOOKS 0 /* polls of the status before tlp_wait takes over: 0 is 256, of 14 clocks each: 31 us */

/* Used by the function that runs; the second line is block_load's, which block_writes calls. */
static u8 left, delta, from, to;
static u8 byte_enables, value_0, value_1, value_2;

/* The first parameter of a function comes in DPL, and a u8 is returned there; others are at _name_PARM_2. */

/* 90 clocks for 4 bytes: 22.5 a byte. */
void block_copy(u8 from_page, u8 to_page, u8 quads) __naked
{
    (void)from_page, (void)to_page, (void)quads;
    __asm
        mov     _from,dpl
        mov     _to,_block_copy_PARM_2
        mov     r7,_block_copy_PARM_3
        mov     r4,_block_first
        mov     r5,_block_second
        mov     r6,#0
00001$:
        mov     dph,_from               ; 3
        mov     dpl,r6                  ; 2
        movx    a,@dptr                 ; 5
        mov     r0,a                    ; 1
        add     a,r4                    ; 1
        mov     r4,a                    ; 1
        add     a,r5                    ; 1
        mov     r5,a                    ; 1
        inc     dptr                    ; 1
        movx    a,@dptr                 ; 11 a byte
        mov     r1,a
        add     a,r4
        mov     r4,a
        add     a,r5
        mov     r5,a
        inc     dptr
        movx    a,@dptr                 ; 11
        mov     r2,a
        add     a,r4
        mov     r4,a
        add     a,r5
        mov     r5,a
        inc     dptr
        movx    a,@dptr                 ; 10, without INC DPTR
        mov     r3,a
        add     a,r4
        mov     r4,a
        add     a,r5
        mov     r5,a
        mov     dph,_to                 ; 3
        mov     dpl,r6                  ; 2
        mov     a,r0                    ; 1
        movx    @dptr,a                 ; 5
        inc     dptr                    ; 1
        mov     a,r1                    ; 7
        movx    @dptr,a
        inc     dptr
        mov     a,r2                    ; 7
        movx    @dptr,a
        inc     dptr
        mov     a,r3                    ; 6
        movx    @dptr,a
        mov     a,r6                    ; 1
        add     a,#4                    ; 2
        mov     r6,a                    ; 1
        jz      00002$                  ; 4
        djnz    r7,00001$               ; 4
        sjmp    00003$
00002$:
        inc     _from
        inc     _to
        djnz    r7,00001$
00003$:
        mov     _block_first,r4
        mov     _block_second,r5
        ret
    __endasm;
}

/* 202 clocks for a 32-bit address, 231 for one of 64. */
u8 block_load(void) __naked
{
    __asm
        mov     dpl,_block_operation    ; 3
        mov     dph,(_block_operation + 1) ; 3
        inc     dptr                    ; 1     opcode
        movx    a,@dptr                 ; 5
        mov     _byte_enables,a         ; 2
        anl     a,#0xF0                 ; 2
        mov     _block_misfit,a               ; 2
        inc     dptr                    ; 1
        inc     dptr                    ; 1     count
        inc     dptr                    ; 1
        movx    a,@dptr                 ; 5     lowest byte of the address
        mov     r0,a                    ; 1
        anl     a,#3                    ; 2
        orl     _block_misfit,a               ; 2
        inc     dptr                    ; 1
        movx    a,@dptr                 ; 7 a byte
        mov     r1,a
        inc     dptr
        movx    a,@dptr                 ; 7
        mov     r2,a
        inc     dptr
        movx    a,@dptr                 ; 7
        mov     r3,a
        inc     dptr
        movx    a,@dptr                 ; 7     the upper half
        mov     r4,a
        inc     dptr
        movx    a,@dptr                 ; 7
        mov     r5,a
        inc     dptr
        movx    a,@dptr                 ; 7
        mov     r6,a
        inc     dptr
        movx    a,@dptr                 ; 7
        mov     r7,a
        inc     dptr
        movx    a,@dptr                 ; 8     value
        mov     _value_0,a
        inc     dptr
        movx    a,@dptr                 ; 8
        mov     _value_1,a
        inc     dptr
        movx    a,@dptr                 ; 8
        mov     _value_2,a
        inc     dptr
        movx    a,@dptr                 ; 5
        inc     dptr                    ; 1
        mov     _block_operation,dpl    ; 3
        mov     (_block_operation + 1),dph ; 3
        mov     dptr,#_data_3           ; 3
        movx    @dptr,a                 ; 5
        inc     dptr                    ; 1
        mov     a,_value_2              ; 8 a byte
        movx    @dptr,a
        inc     dptr
        mov     a,_value_1              ; 8
        movx    @dptr,a
        inc     dptr
        mov     a,_value_0              ; 7
        movx    @dptr,a
        mov     dptr,#_enables          ; 3
        mov     a,_byte_enables         ; 8
        movx    @dptr,a
        inc     dptr
        mov     a,r3                    ; 7 a byte
        movx    @dptr,a
        inc     dptr
        mov     a,r2                    ; 7
        movx    @dptr,a
        inc     dptr
        mov     a,r1                    ; 7
        movx    @dptr,a
        inc     dptr
        mov     a,r0                    ; 7
        movx    @dptr,a
        inc     dptr
        mov     a,r4                    ; 4
        orl     a,r5
        orl     a,r6
        orl     a,r7
        jz      00001$                  ; 4
        mov     a,r7                    ; 7 a byte
        movx    @dptr,a
        inc     dptr
        mov     a,r6                    ; 7
        movx    @dptr,a
        inc     dptr
        mov     a,r5                    ; 7
        movx    @dptr,a
        inc     dptr
        mov     a,r4                    ; 6
        movx    @dptr,a
        mov     a,#WIDE                 ; 2
00001$:
        mov     dpl,a                   ; 2
        ret                             ; 4
    __endasm;
}

/* About 290 clocks a WRITE to a 64-bit address, with those of block_load. */
u8 block_writes(u8 limit) __naked
{
    (void)limit;
    __asm
        mov     _from,dpl
        mov     _left,dpl
00001$:
        mov     dpl,_block_operation    ; 3
        mov     dph,(_block_operation + 1) ; 3
        movx    a,@dptr                 ; 5
        cjne    a,#OPCODE_WRITE,00002$  ; 4
        lcall   _block_load             ; 4
        mov     a,_block_misfit         ; 2
        jnz     00003$                  ; 4
        mov     a,dpl                   ; 2
        add     a,#TLP_FMT_TYPE_KIND_MWR32 ; 2
        mov     dptr,#_format           ; 3
        movx    @dptr,a                 ; 5
        mov     dptr,#_status           ; 3
        mov     a,#STATUS_BITS          ; 2
        movx    @dptr,a                 ; 5
        mov     dptr,#_launch           ; 3
        mov     a,#TLP_LAUNCH_CODE_REQUEST ; 2
        movx    @dptr,a                 ; 5
        djnz    _left,00001$            ; 5
        sjmp    00002$
00003$:
        mov     a,_block_operation      ; back to it
        add     a,#-OPERATION_SIZE
        mov     _block_operation,a
        jc      00002$
        dec     (_block_operation + 1)
00002$:
        mov     a,_from
        clr     c
        subb    a,_left
        mov     dpl,a
        ret
    __endasm;
}

/* The lowest address byte has wrapped to 0: carry into the others. Changes A, R7, DPTR. */
static void carry(void) __naked
{
    __asm
        mov     dptr,#_address_1
        mov     r7,#3
        lcall   00001$
        jnz     00002$
        mov     dptr,#_address_high_0
        mov     r7,#4
00001$:
        movx    a,@dptr
        inc     a
        movx    @dptr,a
        jnz     00002$
        dec     dpl
        djnz    r7,00001$
00002$:
        ret
    __endasm;
}

/* Read the header of a packet of payload: leaves DPTR behind it, its sums in R4 and R5. */
static void begin_packet(void) __naked
{
    __asm
        clr     a
        mov     r4,a
        mov     r5,a
        mov     dptr,#_packet
        mov     r7,#PAYLOAD_HEADER_SIZE
00001$:
        movx    a,@dptr
        add     a,r4
        mov     r4,a
        add     a,r5
        mov     r5,a
        inc     dptr
        djnz    r7,00001$
        ret
    __endasm;
}

/* In the loop R3:R6 is the place in the packet. The lowest bytes of place and address rise together, with a
 * constant difference, and a pass of the outer loop ends where one of them becomes 0 or the packet ends; so
 * the inner loop, of R7 dwords, needs no carry.
 *
 * 113 clocks a dword: 55 of MOVX, 16 of sums; and about 60 for each pass of the outer loop. */
u8 block_write(u8 dwords) __naked
{
    (void)dwords;
    __asm
        mov     _left,dpl
        lcall   _begin_packet
        mov     r6,dpl
        mov     r3,dph
        mov     a,_block_step
        jnz     00010$
        ljmp    _write_fifo
00010$:
        mov     dptr,#_address_0
        movx    a,@dptr
        clr     c
        subb    a,r6
        add     a,#-4
        mov     _delta,a                ; address - place, less what the loop has already added
00001$:
        mov     a,r6                    ; bytes to the end of the address page, less 1
        add     a,#4
        add     a,_delta
        cpl     a
        mov     r0,a
        mov     a,r6                    ; and of the page of place; the smaller of them
        cpl     a
        mov     r7,a
        clr     c
        subb    a,r0
        jc      00002$
        mov     a,r0
        mov     r7,a
00002$:
        mov     a,r7                    ; R7: dwords
        rr      a
        rr      a
        anl     a,#0x3F
        inc     a
        mov     r7,a
        mov     a,_left
        clr     c
        subb    a,r7
        jnc     00003$
        mov     r7,_left
        clr     a
00003$:
        mov     _left,a

        .macro  write_dword
        mov     dph,r3                  ; 2
        mov     dpl,r6                  ; 2
        movx    a,@dptr                 ; 5
        mov     r0,a                    ; 1
        add     a,r4                    ; 1
        mov     r4,a                    ; 1
        add     a,r5                    ; 1
        mov     r5,a                    ; 1
        inc     dptr                    ; 1
        movx    a,@dptr                 ; 11 a byte
        mov     r1,a
        add     a,r4
        mov     r4,a
        add     a,r5
        mov     r5,a
        inc     dptr
        movx    a,@dptr                 ; 11
        mov     r2,a
        add     a,r4
        mov     r4,a
        add     a,r5
        mov     r5,a
        inc     dptr
        movx    a,@dptr                 ; 5     the highest byte is the first to go
        mov     dptr,#_data_3           ; 3
        movx    @dptr,a                 ; 5
        add     a,r4                    ; 1
        mov     r4,a                    ; 1
        add     a,r5                    ; 1
        mov     r5,a                    ; 1
        inc     dptr                    ; 1
        mov     a,r2                    ; 7 a byte
        movx    @dptr,a
        inc     dptr
        mov     a,r1                    ; 7
        movx    @dptr,a
        inc     dptr
        mov     a,r0                    ; 6
        movx    @dptr,a
        .endm
        .macro  send
        mov     dptr,#_status           ; 3
        mov     a,#STATUS_BITS          ; 2
        movx    @dptr,a                 ; 5
        mov     dptr,#_launch           ; 3
        mov     a,#TLP_LAUNCH_CODE_REQUEST ; 2
        movx    @dptr,a                 ; 5
        .endm

00006$:
        write_dword                     ; 75
        mov     a,r6                    ; 1
        add     a,#4                    ; 2
        mov     r6,a                    ; 1
        add     a,_delta                ; 2
        mov     dptr,#_address_0        ; 3
        movx    @dptr,a                 ; 5
        send                            ; 20
        djnz    r7,00006$               ; 4

        mov     a,r6
        jnz     00007$
        inc     r3
00007$:
        add     a,#4
        add     a,_delta                ; the address behind the last dword
        jnz     00008$
        lcall   _carry
00008$:
        mov     a,_left
        jnz     00001$
        mov     a,r6
        add     a,#4
        add     a,_delta
        mov     dptr,#_address_0
        movx    @dptr,a
        mov     a,r4
        orl     a,r5
        mov     dpl,a
        ret
    __endasm;
}

/* 107 clocks a dword. */
static void write_fifo(void) __naked
{
    __asm
00001$:
        write_dword                     ; 75
        send                            ; 20
        mov     a,r6                    ; 1
        add     a,#4                    ; 2
        mov     r6,a                    ; 1
        jnz     00002$                  ; 4
        inc     r3
00002$:
        djnz    _left,00001$            ; 5
        mov     a,r4
        orl     a,r5
        mov     dpl,a
        ret
    __endasm;
}

/* Store R5 to R2 at block_place, and advance it: 38 clocks. */
static void store(void) __naked
{
    __asm
        mov     dpl,_block_place        ; 3
        mov     dph,(_block_place + 1)  ; 3
        mov     a,r2                    ; 7 a byte
        movx    @dptr,a
        inc     dptr
        mov     a,r3                    ; 7
        movx    @dptr,a
        inc     dptr
        mov     a,r4                    ; 7
        movx    @dptr,a
        inc     dptr
        mov     a,r5                    ; 7
        movx    @dptr,a
        inc     dptr
        mov     _block_place,dpl        ; 3
        mov     (_block_place + 1),dph  ; 3
        ret                             ; 4
    __endasm;
}

void block_store(void) __naked
{
    __asm
        .macro  take_data
        mov     dptr,#_data_3           ; 3
        movx    a,@dptr                 ; 6 a byte
        mov     r5,a
        inc     dptr                    ; 1
        movx    a,@dptr
        mov     r4,a
        inc     dptr                    ; 1
        movx    a,@dptr
        mov     r3,a
        inc     dptr                    ; 1
        movx    a,@dptr
        mov     r2,a
        .endm
        take_data
        ljmp    _store
    __endasm;
}

/* From one launch to the next: the round trip, up to 24 clocks until it is seen, and 64 from then on. The
 * other work, storing the last dword and advancing the address (75 clocks), is done while the request is in
 * flight. The completion's data is read before the next launch, never after. */
u8 block_read(u8 more) __naked
{
    (void)more;
    __asm
        mov     r7,dpl
        mov     a,r7
        jz      00005$
00001$:
        mov     dptr,#_address_0        ; 3
        movx    a,@dptr                 ; 5
        add     a,_block_step           ; 2
        movx    @dptr,a                 ; 5
        jc      00004$                  ; 3
00002$:
        mov     r6,#LOOKS               ; 2
        mov     dptr,#_status           ; 3
00003$:
        movx    a,@dptr                 ; 5
        jb      COMPLETE_BIT,00006$     ; 5
        djnz    r6,00003$               ; 4
00005$:
        mov     dpl,r7
        ret
00004$:
        mov     a,r7                    ; carry changes it
        mov     r6,a
        lcall   _carry
        mov     a,r6
        mov     r7,a
        sjmp    00002$
00006$:
        mov     dptr,#_completion_status ; 3
        movx    a,@dptr                 ; 5
        anl     a,#FAILED               ; 2
        jnz     00005$                  ; 4
        take_data                       ; 30
        send                            ; 20
        lcall   _store                  ; 42    the next request is on its way
        djnz    r7,00001$               ; 4
        sjmp    00005$
    __endasm;
}
