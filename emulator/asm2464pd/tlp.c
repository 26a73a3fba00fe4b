/* See tlp.h. */
#include "tlp.h"

/* Offsets in page 0xB2, by the names of firmware/asm2464pd/registers/tlp.py. */
enum {
    FMT_TYPE = 0x10,
    ATTRIBUTES = 0x12,
    LENGTH = 0x13,
    REQUESTER = 0x14,
    TAG = 0x16,
    BYTE_ENABLES = 0x17,
    ADDRESS = 0x18,
    ADDRESS_HIGH = 0x1C,
    DATA = 0x20,
    COMPLETION = 0x24,
    COMPLETER = 0x28,
    COMPLETION_STATUS = 0x2A,
    COMPLETION_TAIL = 0x2C,
    COMPLETION_KIND = 0x84,
    STATUS = 0x96,
};

/* Bits of STATUS, and the launch code. */
enum { ERROR = 0x01, COMPLETE = 0x02, SENT = 0x04, REQUEST = 0x0F };

/* Header bytes (PCIe base specification, 2.2.1): fmt bit 1 has data, fmt bit 0 has a 64-bit address. */
enum { HAS_DATA = 0x40, WIDE = 0x20, TYPE = 0x1F, MEMORY = 0x00, MESSAGE = 0x10, CPL = 0x0A, CPLD = 0x4A };

static uint32_t load32(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static void store16(uint8_t *bytes, uint16_t value)
{
    bytes[0] = (uint8_t)(value >> 8);
    bytes[1] = (uint8_t)value;
}

static void copy_reversed(uint8_t *to, const uint8_t *from)
{
    for (int i = 0; i < 4; i++)
        to[i] = from[3 - i];
}

static void copy_enabled(uint8_t *to, const uint8_t *from, uint8_t enables)
{
    for (int i = 0; i < 4; i++)
        if (enables >> i & 1)
            to[i] = from[i];
}

void tlp_init(struct tlp *engine, uint8_t *page, uint64_t round_trip)
{
    engine->page = page;
    engine->round_trip = round_trip;
    engine->device.self = engine;
    engine->device.write = tlp_write;
    engine->device.tick = tlp_tick;
    engine->device.due = UINT64_MAX;
}

static void decode(struct tlp_request *request, const uint8_t *page, uint64_t clock)
{
    uint8_t type;

    request->clock = clock;
    request->fmt_type = page[FMT_TYPE];
    request->length = (uint16_t)((page[ATTRIBUTES] & 3) << 8 | page[LENGTH]);
    request->requester = (uint16_t)(page[REQUESTER] << 8 | page[REQUESTER + 1]);
    request->tag = page[TAG];
    request->enables = page[BYTE_ENABLES] & 0x0F;
    request->last_enables = page[BYTE_ENABLES] >> 4;
    request->address = load32(page + ADDRESS);
    if (request->fmt_type & WIDE)
        request->address |= (uint64_t)load32(page + ADDRESS_HIGH) << 32;
    copy_reversed(request->data, page + DATA);
    type = request->fmt_type & TYPE;
    request->posted = type == MEMORY ? (request->fmt_type & HAS_DATA) != 0 : (type & 0x18) == MESSAGE;
}

void tlp_describe(const struct tlp_request *request, struct tlp_completion *completion)
{
    int first = 0;
    int last = 0;

    completion->tag = request->tag;
    completion->requester = request->requester;
    if ((request->fmt_type & TYPE) != MEMORY) {
        completion->byte_count = 4;
        completion->lower_address = 0;
        return;
    }
    /* PCIe base specification, table 2-39: from the first enabled byte to the last; 1 if none is. */
    for (int i = 3; i >= 0; i--)
        if (request->enables >> i & 1)
            first = i;
    for (int i = 0; i < 4; i++)
        if (request->enables >> i & 1)
            last = i;
    completion->byte_count = (uint16_t)(last - first + 1);
    completion->lower_address = (uint8_t)((request->address & 0x7C) | (unsigned)first);
}

void tlp_latch(struct tlp *engine, const struct tlp_completion *completion)
{
    uint8_t *page = engine->page;

    if (!completion->arrived) {
        page[STATUS] |= ERROR;
        return;
    }
    page[COMPLETION] = completion->has_data ? CPLD : CPL;
    page[COMPLETION + 1] = 0;
    page[COMPLETION + 2] = 0;
    page[COMPLETION + 3] = completion->has_data; /* length, one dword */
    store16(page + COMPLETER, completion->completer);
    store16(page + COMPLETION_STATUS, (uint16_t)(completion->status << 13 | completion->byte_count));
    store16(page + COMPLETION_TAIL, completion->requester);
    page[COMPLETION_TAIL + 2] = completion->tag;
    page[COMPLETION_TAIL + 3] = completion->lower_address;
    page[COMPLETION_KIND] = completion->has_data;
    if (completion->has_data)
        copy_reversed(page + DATA, completion->data);
    page[STATUS] |= COMPLETE;
}

void tlp_answer(struct tlp *engine, uint64_t due, const struct tlp_completion *completion)
{
    engine->pending = *completion;
    engine->outstanding = 1;
    engine->device.due = due;
}

void tlp_abandon(struct tlp *engine)
{
    engine->outstanding = 0;
    engine->device.due = UINT64_MAX;
}

/* The memory that holds a whole dword. */
static const struct tlp_range *find(const struct tlp *engine, uint64_t address)
{
    for (uint32_t i = 0; i < engine->range_count; i++) {
        const struct tlp_range *range = &engine->ranges[i];
        if (range->size >= 4 && address - range->base <= range->size - 4)
            return range;
    }
    return 0;
}

int tlp_write(void *self, uint64_t clock, uint16_t address, uint8_t value)
{
    struct tlp *engine = self;
    struct tlp_request *request = &engine->request;
    const struct tlp_range *range;
    uint8_t *memory;

    (void)address; /* the launch register is the only native byte */
    engine->code = value;
    if (value != REQUEST)
        return TLP_UNKNOWN;
    tlp_abandon(engine);
    decode(request, engine->page, clock);
    engine->page[STATUS] |= SENT;
    if (!engine->up || (request->fmt_type & ~(HAS_DATA | WIDE)) != MEMORY || request->length != 1 ||
        request->last_enables)
        return TLP_ROUTE;
    range = find(engine, request->address & ~(uint64_t)3);
    if (!range)
        return TLP_ROUTE;
    engine->served++;
    memory = range->memory + ((request->address & ~(uint64_t)3) - range->base);
    if (request->posted) {
        copy_enabled(memory, request->data, request->enables);
    } else {
        struct tlp_completion completion = {.arrived = 1, .has_data = 1, .completer = range->completer};
        copy_enabled(completion.data, memory, request->enables);
        tlp_describe(request, &completion);
        tlp_answer(engine, clock + engine->round_trip, &completion);
    }
    return engine->notify ? TLP_CHANGED : TLP_NOTHING;
}

int tlp_tick(void *self, uint64_t clock)
{
    struct tlp *engine = self;

    if (!engine->outstanding || clock < engine->device.due)
        return TLP_NOTHING;
    tlp_abandon(engine);
    tlp_latch(engine, &engine->pending);
    return engine->notify ? TLP_CHANGED : TLP_NOTHING;
}
