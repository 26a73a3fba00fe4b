/* See waves.h: lanes reach memory here, one by one, unless translated code could do it by itself. */
#include "waves_internal.h"

typedef uint32_t __attribute__((may_alias, aligned(1))) word;
typedef uint64_t __attribute__((may_alias, aligned(1))) wide;

enum { DWORD = 4, LDS_APERTURE_BITS = 32 };

/* The extent that holds an address. Does not return if none does. */
static struct waves_extent *find(struct waves_run *run, uint64_t address, int write, int64_t pc)
{
    for (;;) {
        uint32_t low = 0, high = run->extent_count;
        struct waves_extent *last = &run->extents[run->last_extent];

        if (run->last_extent < high && address >= last->start && address < last->end
            && (!write || last->writable))
            return last;
        while (low < high) {
            uint32_t middle = (low + high) / 2;

            if (run->extents[middle].end <= address)
                low = middle + 1;
            else
                high = middle;
        }
        if (low < run->extent_count && address >= run->extents[low].start
            && (!write || run->extents[low].writable)) {
            run->last_extent = low;
            return &run->extents[low];
        }
        run->fault_address = address;
        run->fault_write = (uint32_t)write;
        run->fault_pc = pc;
        waves_ask(run, REQUEST_TRANSLATE);
    }
}

static int joins(const struct waves_extent *left, const struct waves_extent *right)
{
    return left->end == right->start && left->host + (left->end - left->start) == right->host
           && left->memory == right->memory && left->writable == right->writable;
}

static void remove_extent(struct waves_run *run, uint32_t at)
{
    run->extent_count--;
    for (; at < run->extent_count; at++)
        run->extents[at] = run->extents[at + 1];
}

int waves_add(struct waves_run *run, uint64_t start, uint64_t end, uint8_t *host, struct waves_memory *memory,
              int writable)
{
    struct waves_extent *extents = run->extents;
    uint32_t at = 0;

    while (at < run->extent_count && extents[at].end <= start)
        at++;
    while (at < run->extent_count && extents[at].start < end) /* known, with fewer rights */
        remove_extent(run, at);
    if (run->extent_count == WAVES_EXTENTS)
        return 0;
    for (uint32_t move = run->extent_count; move > at; move--)
        extents[move] = extents[move - 1];
    extents[at] = (struct waves_extent){start, end, host, memory, (uint32_t)writable};
    run->extent_count++;
    if (at + 1 < run->extent_count && joins(&extents[at], &extents[at + 1])) {
        extents[at].end = extents[at + 1].end;
        remove_extent(run, at + 1);
    }
    if (at && joins(&extents[at - 1], &extents[at])) {
        extents[at - 1].end = extents[at].end;
        remove_extent(run, at);
    }
    return 1;
}

/* Save the page of a byte before it changes. */
static void save_page(struct waves_run *run, struct waves_memory *memory, uint64_t address, uint64_t offset)
{
    uint64_t page = offset / WAVES_PAGE;
    uint64_t base = page * WAVES_PAGE;

    if (memory->saved[page / 64] >> (page % 64) & 1)
        return;
    memory->saved[page / 64] |= (uint64_t)1 << (page % 64);
    __builtin_memcpy(memory->old + base, memory->base + base, WAVES_PAGE);
    address -= offset % WAVES_PAGE;
    run->pages[run->page_count++] = (struct waves_page){address, memory->base + base, memory};
}

static void mark(struct waves_memory *memory, uint64_t offset, uint64_t size)
{
    uint8_t *marks = memory->marks;
    uint64_t end = offset + size;

    while (offset < end && offset % 8)
        marks[offset / 8] |= (uint8_t)(1 << offset % 8), offset++;
    for (; offset + 8 <= end; offset += 8)
        marks[offset / 8] = 0xFF;
    for (; offset < end; offset++)
        marks[offset / 8] |= (uint8_t)(1 << offset % 8);
}

static uint64_t least(uint64_t left, uint64_t right)
{
    return left < right ? left : right;
}

/* Host address of bytes to be written; `*size` becomes how many of them lie in one piece. */
static uint8_t *writable(struct waves_run *run, uint64_t address, uint64_t *size, int64_t pc)
{
    struct waves_extent *extent = find(run, address, 1, pc);
    uint8_t *host = extent->host + (address - extent->start);
    uint64_t offset = (uint64_t)(host - extent->memory->base);

    *size = least(*size, least(extent->end - address, WAVES_PAGE - offset % WAVES_PAGE));
    save_page(run, extent->memory, address, offset);
    mark(extent->memory, offset, *size);
    return host;
}

static void copy(uint8_t *to, const uint8_t *from, uint64_t size)
{
    if (size == 4)
        *(word *)to = *(const word *)from;
    else if (size == 8)
        *(wide *)to = *(const wide *)from;
    else
        for (uint64_t at = 0; at < size; at++)
            to[at] = from[at];
}

static void read_bytes(struct waves_run *run, uint64_t address, uint8_t *to, uint64_t size, int64_t pc)
{
    while (size) {
        struct waves_extent *extent = find(run, address, 0, pc);
        uint64_t part = least(extent->end - address, size);

        copy(to, extent->host + (address - extent->start), part);
        address += part;
        to += part;
        size -= part;
    }
}

static void write_bytes(struct waves_run *run, uint64_t address, const uint8_t *from, uint64_t size,
                        int64_t pc)
{
    while (size) {
        uint64_t part = size;
        uint8_t *to = writable(run, address, &part, pc);

        copy(to, from, part);
        address += part;
        from += part;
        size -= part;
    }
}

/* Where a lane's dword of scratch is: dwords of all lanes lie side by side. */
static uint64_t swizzled(const struct waves_run *run, uint64_t offset, uint32_t lane)
{
    return run->current->scratch + (offset / DWORD) * DWORD * WAVES_LANES + lane * DWORD + offset % DWORD;
}

static int in_lds(const struct waves_run *run, uint64_t offset, uint64_t size)
{
    return offset <= run->lds_size && size <= run->lds_size - offset;
}

/* What an address means: FLAT decides by its upper half. */
static int resolve(const struct waves_run *run, uint64_t *address, int space)
{
    uint32_t upper = (uint32_t)(*address >> LDS_APERTURE_BITS);

    if (space != WAVES_FLAT)
        return space;
    if (upper != run->shared_aperture && upper != run->private_aperture)
        return WAVES_GLOBAL;
    *address = (uint32_t)*address;
    return upper == run->shared_aperture ? WAVES_LDS : WAVES_SCRATCH;
}

static void read_lane(struct waves_run *run, uint64_t address, uint32_t lane, int space, uint8_t *to,
                      uint64_t size, int64_t pc)
{
    switch (resolve(run, &address, space)) {
    case WAVES_LDS:
        if (in_lds(run, address, size)) {
            copy(to, run->lds + address, size);
        } else {
            run->lds_bad |= 1u << lane;
            for (uint64_t at = 0; at < size; at++)
                to[at] = 0;
        }
        break;
    case WAVES_SCRATCH:
        for (uint64_t at = 0; at < size;) {
            uint64_t part = address % DWORD || size - at < DWORD ? 1 : DWORD;

            read_bytes(run, swizzled(run, address, lane), to + at, part, pc);
            address += part;
            at += part;
        }
        break;
    default:
        run->read += size;
        read_bytes(run, address, to, size, pc);
    }
}

static void write_lane(struct waves_run *run, uint64_t address, uint32_t lane, int space, const uint8_t *from,
                       uint64_t size, int64_t pc)
{
    switch (resolve(run, &address, space)) {
    case WAVES_LDS:
        if (in_lds(run, address, size))
            copy(run->lds + address, from, size);
        else
            run->lds_bad |= 1u << lane;
        break;
    case WAVES_SCRATCH:
        for (uint64_t at = 0; at < size;) {
            uint64_t part = address % DWORD || size - at < DWORD ? 1 : DWORD;

            write_bytes(run, swizzled(run, address, lane), from + at, part, pc);
            address += part;
            at += part;
        }
        break;
    default:
        run->written += size;
        write_bytes(run, address, from, size, pc);
    }
}

/* Remember the extent of an address for the next time: 2 GiB of it at most, around the address. */
static void remember(struct waves_run *run, struct waves_site *site, uint64_t address, int64_t pc)
{
    enum { REACH = 1 << 30 };
    struct waves_extent *extent = find(run, address, 0, pc);
    uint64_t start = address - extent->start > REACH ? address - REACH : extent->start;
    uint64_t end = extent->end - address > REACH ? address + REACH - 1 : extent->end;

    *site = (struct waves_site){start, end - start, extent->host + (start - extent->start)};
}

void waves_load(struct waves_run *run, struct waves_site *site, const uint64_t *addresses, uint32_t lanes,
                int size, int space, int64_t pc, uint32_t *out)
{
    int words = (size + DWORD - 1) / DWORD;
    uint32_t last = 0;

    for (uint32_t lane = 0; lane < WAVES_LANES; lane++) {
        uint32_t value[4] = {0, 0, 0, 0};

        if (lanes >> lane & 1) {
            read_lane(run, addresses[lane], lane, space, (uint8_t *)value, (uint64_t)size, pc);
            last = lane;
        }
        for (int at = 0; at < words; at++)
            out[at * WAVES_LANES + lane] = value[at];
    }
    uint64_t address = addresses[last];
    if (lanes && resolve(run, &address, space) == WAVES_GLOBAL)
        remember(run, site, address, pc);
}

void waves_store(struct waves_run *run, const uint64_t *addresses, uint32_t lanes, int size, int space,
                 int64_t pc, const uint32_t *data)
{
    uint64_t whole = (uint64_t)size * WAVES_LANES;

    /* All lanes side by side: one copy. */
    if (lanes == 0xFFFFFFFFu && size == DWORD && space == WAVES_GLOBAL) {
        uint32_t apart = 0;

        for (uint32_t lane = 0; lane < WAVES_LANES; lane++)
            apart |= (addresses[lane] - addresses[0]) != lane * DWORD;
        if (!apart) {
            write_bytes(run, addresses[0], (const uint8_t *)data, whole, pc);
            run->written += whole;
            return;
        }
    }
    for (uint32_t lane = 0; lane < WAVES_LANES; lane++) {
        uint32_t value[4];

        if (!(lanes >> lane & 1))
            continue;
        for (int at = 0; at * DWORD < size; at++)
            value[at] = data[at * WAVES_LANES + lane];
        write_lane(run, addresses[lane], lane, space, (const uint8_t *)value, (uint64_t)size, pc);
    }
}

void waves_scalar_load(struct waves_run *run, struct waves_site *site, uint64_t address, int size, int64_t pc,
                       uint32_t *out)
{
    read_bytes(run, address, (uint8_t *)out, (uint64_t)size, pc);
    remember(run, site, address, pc);
}

static float as_float(uint64_t bits)
{
    uint32_t word32 = (uint32_t)bits;
    float value;

    __builtin_memcpy(&value, &word32, sizeof value);
    return value;
}

static uint64_t float_bits(float value)
{
    uint32_t bits;

    __builtin_memcpy(&bits, &value, sizeof bits);
    return bits;
}

static double as_double(uint64_t bits)
{
    double value;

    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

static uint64_t double_bits(double value)
{
    uint64_t bits;

    __builtin_memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* minNum and maxNum of IEEE 754-2008: a number wins over NaN; -0 is less than +0. */
static double lesser(double left, double right)
{
    if (left != left || right != right)
        return left != left ? right : left;
    if (left == right)
        return double_bits(left) >> 63 ? left : right;
    return left < right ? left : right;
}

static double greater(double left, double right)
{
    if (left != left || right != right)
        return left != left ? right : left;
    if (left == right)
        return double_bits(left) >> 63 ? right : left;
    return left > right ? left : right;
}

static int64_t extended(uint64_t value, int size)
{
    return size == DWORD ? (int32_t)value : (int64_t)value;
}

static uint64_t combine(int operation, uint64_t memory, uint64_t data, uint64_t compare, int size)
{
    int64_t signed_memory = extended(memory, size), signed_data = extended(data, size);

    switch ((enum waves_operation)operation) {
    case WAVES_SWAP: return data;
    case WAVES_CMPSWAP: return memory == compare ? data : memory;
    case WAVES_ADD: return memory + data;
    case WAVES_SUB: return memory - data;
    case WAVES_RSUB: return data - memory;
    case WAVES_SMIN: return signed_memory < signed_data ? memory : data;
    case WAVES_UMIN: return memory < data ? memory : data;
    case WAVES_SMAX: return signed_memory > signed_data ? memory : data;
    case WAVES_UMAX: return memory > data ? memory : data;
    case WAVES_AND: return memory & data;
    case WAVES_OR: return memory | data;
    case WAVES_XOR: return memory ^ data;
    case WAVES_INC: return memory >= data ? 0 : memory + 1;
    case WAVES_DEC: return memory == 0 || memory > data ? data : memory - 1;
    case WAVES_SUB_CLAMP: return memory < data ? 0 : memory - data;
    case WAVES_COND_SUB: return memory >= data ? memory - data : memory;
    case WAVES_ADD_F32: return float_bits(as_float(memory) + as_float(data));
    case WAVES_MIN_F32: return float_bits((float)lesser(as_float(memory), as_float(data)));
    case WAVES_MAX_F32: return float_bits((float)greater(as_float(memory), as_float(data)));
    case WAVES_ADD_F64: return double_bits(as_double(memory) + as_double(data));
    case WAVES_MIN_F64: return double_bits(lesser(as_double(memory), as_double(data)));
    case WAVES_MAX_F64: return double_bits(greater(as_double(memory), as_double(data)));
    }
    return memory;
}

void waves_atomic(struct waves_run *run, const uint64_t *addresses, uint32_t lanes, int size, int space,
                  int64_t pc, int operation, const uint32_t *data, const uint32_t *compare, uint32_t *out)
{
    for (uint32_t lane = 0; lane < WAVES_LANES; lane++) {
        uint64_t memory = 0, value = data[lane], expected = compare[lane];

        if (lanes >> lane & 1) {
            if (size == 2 * DWORD) {
                value |= (uint64_t)data[WAVES_LANES + lane] << 32;
                expected |= (uint64_t)compare[WAVES_LANES + lane] << 32;
            }
            read_lane(run, addresses[lane], lane, space, (uint8_t *)&memory, (uint64_t)size, pc);
            value = combine(operation, memory, value, expected, size);
            write_lane(run, addresses[lane], lane, space, (const uint8_t *)&value, (uint64_t)size, pc);
        }
        out[lane] = (uint32_t)memory;
        if (size == 2 * DWORD)
            out[WAVES_LANES + lane] = (uint32_t)(memory >> 32);
    }
}

/* Call `found` for each run of marked bytes of the pages, which are sorted, and return their number. */
static uint64_t each_write(struct waves_run *run, uint64_t *bytes, struct waves_write *writes)
{
    uint64_t count = 0, total = 0, end = 0;

    for (uint64_t number = 0; number < run->page_count; number++) {
        const struct waves_page *page = &run->pages[number];
        const uint8_t *marks = page->memory->marks + (uint64_t)(page->host - page->memory->base) / 8;

        for (uint64_t at = 0, step; at < WAVES_PAGE; at += step) {
            uint64_t word = *(const wide *)(marks + at / 8 - at / 8 % 8);

            step = at % 64 ? 1 : word == 0 || ~word == 0 ? 64 : 1;
            if (!(word >> at % 64 & 1))
                continue;
            if (!count || page->address + at != end) {
                if (writes)
                    writes[count] = (struct waves_write){page->address + at, 0};
                count++;
            }
            if (writes)
                writes[count - 1].size += step;
            end = page->address + at + step;
            total += step;
        }
    }
    *bytes = total;
    return count;
}

/* Heap sort: pages are many, and mostly in order already. */
static void sift(struct waves_page *pages, uint64_t root, uint64_t count)
{
    struct waves_page moved = pages[root];

    for (uint64_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && pages[child + 1].address > pages[child].address)
            child++;
        if (pages[child].address <= moved.address)
            break;
        pages[root] = pages[child];
    }
    pages[root] = moved;
}

static void sort_pages(struct waves_page *pages, uint64_t count)
{
    for (uint64_t root = count / 2; root-- > 0;)
        sift(pages, root, count);
    for (uint64_t end = count; end > 1; end--) {
        struct waves_page first = pages[0];

        pages[0] = pages[end - 1];
        pages[end - 1] = first;
        sift(pages, 0, end - 1);
    }
}

uint64_t waves_written(struct waves_run *run, uint64_t *bytes)
{
    sort_pages(run->pages, run->page_count);
    return each_write(run, bytes, 0);
}

void waves_take_back(struct waves_run *run)
{
    for (uint64_t number = 0; number < run->page_count; number++) {
        struct waves_page *page = &run->pages[number];
        struct waves_memory *memory = page->memory;
        uint64_t offset = (uint64_t)(page->host - memory->base);

        __builtin_memcpy(page->host, memory->old + offset, WAVES_PAGE);
        __builtin_memset(memory->marks + offset / 8, 0, WAVES_PAGE / 8);
        memory->saved[offset / WAVES_PAGE / 64] = 0;
    }
    run->page_count = 0;
}

void waves_collect(struct waves_run *run, struct waves_write *writes, uint8_t *data)
{
    uint64_t bytes;

    each_write(run, &bytes, writes);
    for (uint64_t number = 0; number < run->page_count; number++) {
        const struct waves_page *page = &run->pages[number];
        const uint8_t *marks = page->memory->marks + (uint64_t)(page->host - page->memory->base) / 8;

        for (uint64_t at = 0; at < WAVES_PAGE; at += 8) {
            if (marks[at / 8] == 0xFF) {
                *(wide *)data = *(const wide *)(page->host + at);
                data += 8;
            } else if (marks[at / 8]) {
                for (uint64_t bit = 0; bit < 8; bit++)
                    if (marks[at / 8] >> bit & 1)
                        *data++ = page->host[at + bit];
            }
        }
    }
    waves_take_back(run);
}
