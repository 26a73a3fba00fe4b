/* A libusb 1.0 with one device behind a file descriptor: what pyusb and `usbgpu.transport.libusb` call of it.
 *
 * The device keeps what it gets on EP 0x02 and gives it back on EP 0x81. Transfers are queued by endpoint and
 * carried out in libusb_handle_events_timeout_completed alone, one a call, as a slow bus would. Any thread may
 * call what has to do with transfers, as of libusb. Structures and numbers are those of libusb.h.
 */

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum { IO = -1, INVALID = -2, NO_DEVICE = -4, NOT_FOUND = -5, TIMEOUT = -7, PIPE = -9, NO_MEM = -11 };
enum { COMPLETED, ERROR, TIMED_OUT, CANCELLED, STALL, GONE, OVERFLOW };
enum { OUT = 0x02, IN = 0x81, PACKET = 1024, DEPTH = 64, STORE = 1 << 24 };

struct transfer {
    void *handle;
    uint8_t flags, endpoint, type;
    unsigned timeout;
    int status, length, actual_length;
    void (*callback)(struct transfer *);
    void *user_data;
    unsigned char *buffer;
    int num_iso_packets;
};
struct endpoint { uint8_t length, type, address, attributes; uint16_t packet; uint8_t interval, refresh, synch; const uint8_t *extra; int extra_length; };
struct setting { uint8_t length, type, number, alternate, endpoints, class, subclass, protocol, name; const struct endpoint *endpoint; const uint8_t *extra; int extra_length; };
struct interface { const struct setting *settings; int count; };
struct configuration { uint8_t length, type; uint16_t total; uint8_t interfaces, value, name, attributes, power; const struct interface *interface; const uint8_t *extra; int extra_length; };
struct device { uint8_t length, type; uint16_t usb; uint8_t class, subclass, protocol, packet; uint16_t vendor, product, release; uint8_t manufacturer, name, serial, configurations; };

static const struct endpoint endpoints[] = {{7, 5, IN, 2, PACKET}, {7, 5, OUT, 2, PACKET}};
static const struct setting setting = {9, 4, 0, 0, 2, 0xff, 0xff, 0xff, 0, endpoints};
static const struct interface interface = {&setting, 1};
static const struct configuration configuration = {9, 2, 32, 1, 1, 0, 0xc0, 0, &interface};

/* What a test looks at and sets. */
int discovery = 1, opened, closed, claimed, resets, submitted, living, fails_submit, gone, held, stalled;
char order[4096]; /* of the transfers that went out, by the first byte of each */

static int context, device, handle, fd_of_handle;
static struct transfer *queue[DEPTH];
static int queued;
static unsigned char store[STORE];
static int stored, orders;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* over all that transfers change */

int libusb_set_option(void *ctx, int option, ...) { if (!ctx && option == 2) discovery = 0; return 0; }
void libusb_set_debug(void *ctx, int level) { (void)ctx; (void)level; }
int libusb_init(void **ctx) { *ctx = &context; return discovery ? IO : 0; } /* as on Android */
void libusb_exit(void *ctx) { (void)ctx; }
int libusb_wrap_sys_device(void *ctx, intptr_t fd, void **out)
{
    char name[64] = "";
    char path[32] = "/proc/self/fd/";
    char *end = path + strlen(path);
    if (fd >= 100 || ctx != &context) return INVALID;
    *end++ = '0' + (char)(fd / 10);
    *end++ = '0' + (char)(fd % 10);
    *end = 0;
    if (readlink(path, name, sizeof name - 1) < 0) return IO;
    if (strcmp(name, "/dev/null")) return NO_DEVICE; /* that stands for the device's file */
    fd_of_handle = (int)fd;
    opened++;
    *out = &handle;
    return 0;
}
void *libusb_get_device(void *h) { return h == &handle ? &device : 0; }
int libusb_open(void *dev, void **out) { (void)dev; (void)out; return -3; } /* no access but by the descriptor */
void libusb_close(void *h) { if (h == &handle) closed++; }
void *libusb_ref_device(void *dev) { return dev; }
void libusb_unref_device(void *dev) { (void)dev; }
int libusb_get_device_list(void *ctx, void ***list) { (void)ctx; (void)list; return -12; }
void libusb_free_device_list(void **list, int unref) { (void)list; (void)unref; }
void *libusb_get_parent(void *dev) { (void)dev; return 0; }
uint8_t libusb_get_bus_number(void *dev) { (void)dev; return 3; }
uint8_t libusb_get_device_address(void *dev) { (void)dev; return 9; }
uint8_t libusb_get_device_speed(void *dev) { (void)dev; return 4; }
uint8_t libusb_get_port_number(void *dev) { (void)dev; return 0; }
int libusb_get_port_numbers(void *dev, uint8_t *ports, int size) { (void)dev; (void)ports; (void)size; return 0; }
int libusb_get_max_iso_packet_size(void *dev, unsigned char ep) { (void)dev; (void)ep; return 0; }
int libusb_get_device_descriptor(void *dev, struct device *found)
{
    *found = (struct device){18, 1, 0x0320, 0, 0, 0, 9, 0xadd1, 0x0001, 0x0100, 0, 0, 0, 1};
    return dev == &device ? 0 : NO_DEVICE;
}
int libusb_get_config_descriptor(void *dev, uint8_t index, const struct configuration **found)
{
    (void)dev;
    *found = &configuration;
    return index ? NOT_FOUND : 0;
}
void libusb_free_config_descriptor(const struct configuration *found) { (void)found; }
int libusb_get_string_descriptor_ascii(void *h, uint8_t n, unsigned char *d, int l) { (void)h; (void)n; (void)d; (void)l; return PIPE; }
int libusb_get_configuration(void *h, int *value) { (void)h; *value = 1; return 0; }
int libusb_set_configuration(void *h, int value) { (void)h; (void)value; return 0; }
int libusb_claim_interface(void *h, int n) { (void)n; claimed++; return h == &handle ? 0 : NO_DEVICE; }
int libusb_release_interface(void *h, int n) { (void)h; (void)n; claimed--; return 0; }
int libusb_set_interface_alt_setting(void *h, int n, int a) { (void)h; (void)n; (void)a; return 0; }
int libusb_clear_halt(void *h, unsigned char ep) { (void)h; (void)ep; stalled = 0; return 0; }
int libusb_reset_device(void *h) { (void)h; resets++; stored = 0; return 0; }
int libusb_kernel_driver_active(void *h, int n) { (void)h; (void)n; return 0; }
int libusb_detach_kernel_driver(void *h, int n) { (void)h; (void)n; return 0; }
int libusb_attach_kernel_driver(void *h, int n) { (void)h; (void)n; return 0; }
int libusb_control_transfer(void *h, uint8_t type, uint8_t request, uint16_t value, uint16_t index,
                            unsigned char *data, uint16_t length, unsigned timeout)
{
    (void)h; (void)request; (void)value; (void)index; (void)timeout;
    if (type & 0x80) memset(data, 0x5a, length);
    return length;
}
int libusb_bulk_transfer(void) { abort(); }
int libusb_interrupt_transfer(void) { abort(); }
int libusb_handle_events(void *ctx) { (void)ctx; abort(); }

struct transfer *libusb_alloc_transfer(int packets)
{
    pthread_mutex_lock(&lock);
    living++;
    pthread_mutex_unlock(&lock);
    return packets ? 0 : calloc(1, sizeof(struct transfer));
}
void libusb_free_transfer(struct transfer *t)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < queued; i++) if (queue[i] == t) abort(); /* in flight */
    living--;
    pthread_mutex_unlock(&lock);
    memset(t, 0xee, sizeof *t);
    free(t);
}
static int submit(struct transfer *t)
{
    if (gone) return NO_DEVICE;
    if (fails_submit || queued == DEPTH) return NO_MEM;
    if (t->handle != &handle || t->type != 2 || t->timeout || t->num_iso_packets) return INVALID;
    queue[queued++] = t;
    submitted++;
    return 0;
}
static int cancel(struct transfer *t)
{
    for (int i = 0; i < queued; i++)
        if (queue[i] == t) { t->flags |= 0x80; return 0; }
    return NOT_FOUND;
}
static void end(int place, int status)
{
    struct transfer *t = queue[place];
    memmove(queue + place, queue + place + 1, (size_t)(--queued - place) * sizeof *queue);
    t->status = status;
    t->callback(t);
}
static int end_one(void)
{
    for (int i = 0; i < queued; i++)
        if (queue[i]->flags & 0x80) { end(i, CANCELLED); return 1; }
    for (int i = 0; i < queued; i++) {
        struct transfer *t = queue[i];
        int first = 1;
        for (int j = 0; j < i; j++) first &= queue[j]->endpoint != t->endpoint;
        if (!first || held == t->endpoint) continue;
        if (gone) { end(i, GONE); return 1; }
        if (stalled == t->endpoint) { end(i, STALL); return 1; }
        if (t->endpoint == OUT) {
            if (stored + t->length > STORE) continue;
            memcpy(store + stored, t->buffer, (size_t)t->length);
            stored += t->actual_length = t->length;
            order[orders++ % sizeof order] = t->length ? (char)t->buffer[0] : 0;
            end(i, COMPLETED);
            return 1;
        }
        if (stored) {
            t->actual_length = stored < t->length ? stored : t->length;
            memcpy(t->buffer, store, (size_t)t->actual_length);
            memmove(store, store + t->actual_length, (size_t)(stored -= t->actual_length));
            end(i, COMPLETED);
            return 1;
        }
    }
    return 0;
}
int libusb_submit_transfer(struct transfer *t)
{
    pthread_mutex_lock(&lock);
    int code = submit(t);
    pthread_mutex_unlock(&lock);
    return code;
}
int libusb_cancel_transfer(struct transfer *t)
{
    pthread_mutex_lock(&lock);
    int code = cancel(t);
    pthread_mutex_unlock(&lock);
    return code;
}
int libusb_handle_events_timeout_completed(void *ctx, struct timeval *limit, int *completed)
{
    (void)completed;
    if (ctx != &context || limit->tv_sec || limit->tv_usec < 0 || limit->tv_usec >= 1000000) return INVALID;
    pthread_mutex_lock(&lock);
    int ended = end_one();
    pthread_mutex_unlock(&lock);
    if (!ended) usleep((unsigned)limit->tv_usec);
    return 0;
}
