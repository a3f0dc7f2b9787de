/* Regions: memory of this program that the peer writes and reads by its key.
 *
 *     one_sided threads|manual
 */

#define _POSIX_C_SOURCE 200809L

#include "ends.h"

enum { BYTES = 1 << 20, PIECE = 70000 };

static unsigned char data[BYTES], memory[BYTES], sink[BYTES];

static unsigned char *zeroed(unsigned char *bytes)
{
    memset(bytes, 0, BYTES);
    return bytes;
}

static struct lacuna_region *region_of(struct lacuna_context *context, unsigned char *bytes,
                                       uint32_t rights, uint8_t has_validity, uint8_t exclusive)
{
    struct lacuna_region_options options;
    struct lacuna_region *region = NULL;
    memset(&options, 0, sizeof(options));
    options.rights = rights;
    options.has_validity = has_validity;
    options.is_exclusive = exclusive;
    CHECK(lacuna_region_new(context, bytes, BYTES, &options, &region) == LACUNA_OK);
    return region;
}

static uint32_t key_of(struct lacuna_region *region)
{
    uint32_t key = 0, again = 0;
    CHECK(lacuna_region_key(region, &key) == LACUNA_OK);
    CHECK(lacuna_region_key(region, &again) == LACUNA_OK && key == again);
    return key;
}

/* A started write, so that one thread can bring both ends on. */
static int write_within(struct ends *ends, uint32_t key, uint64_t address, const void *bytes,
                        size_t length, const uint32_t *immediate, uint64_t deadline_ms)
{
    struct lacuna_send *send = NULL;
    int result;
    CHECK(lacuna_remote_write_start(ends->near_end, key, address, bytes, length, immediate,
                                    deadline_ms, &send) == LACUNA_OK);
    while ((result = lacuna_send_poll(send)) == LACUNA_RETRY)
        progress(ends);
    CHECK(lacuna_send_free(send) == LACUNA_OK);
    return result;
}

static int write_at(struct ends *ends, uint32_t key, uint64_t address, const void *bytes,
                    size_t length, const uint32_t *immediate)
{
    int result = write_within(ends, key, address, bytes, length, immediate, WAIT_MS);
    struct lacuna_written written;
    /* Without an immediate nobody is told. (The call orders what came before it, as the
     * peer's word, which came over UDP, cannot for the thread sanitizer.) */
    if (!immediate && result == LACUNA_OK)
        CHECK(lacuna_wait_written(ends->far_end, 0, &written, NULL) == LACUNA_DEADLINE);
    return result;
}

static void wait_written(struct ends *ends, struct lacuna_written *written)
{
    struct lacuna_map *map = (struct lacuna_map *)written;
    int result;
    while ((result = lacuna_wait_written(ends->far_end, 0, written, &map)) == LACUNA_DEADLINE)
        progress(ends);
    CHECK(result == LACUNA_OK && !map);
}

static void writes(struct ends *ends)
{
    struct lacuna_region *region = region_of(ends->far_context, zeroed(memory), 0, 1, 0);
    struct lacuna_window *window = NULL;
    struct lacuna_written written;
    uint32_t key = key_of(region), part = 0, immediate = 0xbeef;
    uint8_t bits[BYTES / 64 / 8];
    size_t at;
    CHECK(write_at(ends, key, 4096, data, PIECE, &immediate) == LACUNA_OK);
    wait_written(ends, &written);
    CHECK(written.key == key && written.address == 4096 && written.length == PIECE);
    CHECK(written.bytes == PIECE && written.has_length && written.is_complete);
    CHECK(written.has_immediate && written.immediate == 0xbeef);
    CHECK(written.reason == LACUNA_REASON_WHOLE && written.packet_bytes == 1024);
    CHECK(memcmp(memory + 4096, data, PIECE) == 0 && !memory[4095] && !memory[4096 + PIECE]);
    /* What is there, by the map. */
    memset(bits, 0xaa, sizeof(bits));
    CHECK(lacuna_region_valid(region, 0, BYTES, bits, sizeof(bits)) == LACUNA_OK);
    for (at = 0; at < BYTES / 64; at++)
        CHECK((bits[at / 8] >> at % 8 & 1) == (at >= 64 && 64 * at + 64 <= 4096 + PIECE));
    CHECK(lacuna_region_take_valid(region, 4096, 128, bits, 1) == LACUNA_OK && bits[0] == 3);
    CHECK(lacuna_region_valid(region, 4096, 256, bits, 1) == LACUNA_OK && bits[0] == 12);
    CHECK(lacuna_region_valid(region, 4100, 64, bits, sizeof(bits)) == LACUNA_USAGE);
    CHECK(lacuna_region_valid(region, 0, BYTES, bits, sizeof(bits) - 1) == LACUNA_USAGE);
    /* Without an immediate nobody is told. */
    CHECK(write_at(ends, key, BYTES - 10, data, 10, NULL) == LACUNA_OK);
    CHECK(lacuna_wait_written(ends->far_end, 0, &written, NULL) == LACUNA_DEADLINE);
    CHECK(memcmp(memory + BYTES - 10, data, 10) == 0);
    /* Too far. */
    CHECK(write_at(ends, key, BYTES - 10, data, 11, NULL) == LACUNA_PEER);
    CHECK(strstr(lacuna_last_error(), "refused the write"));
    /* A key that never was gets no answer: nobody can try keys. */
    CHECK(write_within(ends, key + 1, 0, data, 10, NULL, 100) == LACUNA_DEADLINE);
    /* A window's addresses are its own, and it ends with its key. */
    CHECK(lacuna_region_window(region, 1000, 100, LACUNA_RIGHT_REMOTE_WRITE, &window) == LACUNA_OK);
    CHECK(lacuna_window_key(window, &part) == LACUNA_OK && part != key);
    CHECK(write_at(ends, part, 1, data + 7, 99, NULL) == LACUNA_OK);
    CHECK(memcmp(memory + 1001, data + 7, 99) == 0);
    CHECK(write_at(ends, part, 2, data, 99, NULL) == LACUNA_PEER);
    lacuna_window_free(window);
    CHECK(write_at(ends, part, 0, data, 1, NULL) == LACUNA_PEER);
    /* A window outlives its region, without use. */
    CHECK(lacuna_region_window(region, 0, 100, 0, &window) == LACUNA_OK);
    CHECK(lacuna_window_key(window, &part) == LACUNA_OK);
    lacuna_region_free(region);
    memset(memory, 0x55, BYTES);
    CHECK(write_at(ends, part, 0, data, 1, NULL) == LACUNA_PEER);
    CHECK(write_at(ends, key, 0, data, 1, NULL) == LACUNA_PEER);
    CHECK(memory[0] == 0x55);
    lacuna_window_free(window);
}

static void exclusive_bytes_are_written_once(struct ends *ends)
{
    struct lacuna_region *region =
        region_of(ends->far_context, zeroed(memory), LACUNA_RIGHT_REMOTE_WRITE, 0, 1);
    uint32_t key = key_of(region);
    uint8_t bits[2];
    CHECK(write_at(ends, key, 0, data, 1024, NULL) == LACUNA_OK);
    CHECK(memcmp(memory, data, 1024) == 0);
    CHECK(lacuna_region_take_valid(region, 0, 1024, bits, 2) == LACUNA_OK && bits[1] == 0xff);
    CHECK(write_at(ends, key, 0, data + 1, 1024, NULL) == LACUNA_OK);
    CHECK(memcmp(memory, data + 1, 1024) == 0);
    CHECK(lacuna_region_revoke(region) == LACUNA_OK && lacuna_region_revoke(region) == LACUNA_OK);
    CHECK(write_at(ends, key, 2048, data, 10, NULL) == LACUNA_PEER && memory[2048] == 0);
    lacuna_region_free(region);
}

struct reading {
    struct ends *ends;
    struct lacuna_region *into;
    uint32_t key;
    int done;
};

static void *read_twice(void *given)
{
    struct reading *reading = (struct reading *)given;
    struct lacuna_connection *connection = reading->ends->near_end;
    uint64_t came = 0;
    CHECK(lacuna_remote_read(connection, reading->key, 100, BYTES - 1000, reading->into, 900,
                             WAIT_MS, &came) == LACUNA_OK);
    CHECK(came == BYTES - 1000);
    CHECK(lacuna_remote_read(connection, reading->key, BYTES - 5, 6, reading->into, 0, WAIT_MS,
                             &came) == LACUNA_PEER);
    CHECK(lacuna_remote_read(connection, reading->key, 0, 10, reading->into, BYTES - 9, WAIT_MS,
                             NULL) == LACUNA_USAGE);
    CHECK(lacuna_remote_write(connection, reading->key, 0, data, 10, NULL, WAIT_MS) == LACUNA_PEER);
    PUT(reading->done, 1);
    return NULL;
}

static void reads(struct ends *ends)
{
    struct lacuna_region *from;
    struct reading reading;
    pthread_t thread;
    uint8_t bits;
    memcpy(memory, data, BYTES);
    from = region_of(ends->far_context, memory, LACUNA_RIGHT_REMOTE_READ, 0, 0);
    reading.ends = ends;
    reading.into = region_of(ends->near_context, zeroed(sink), LACUNA_RIGHT_LOCAL, 0, 0);
    reading.key = key_of(from);
    reading.done = 0;
    /* It has no map. */
    CHECK(lacuna_region_valid(from, 0, 64, &bits, 1) == LACUNA_USAGE);
    CHECK(pthread_create(&thread, NULL, read_twice, &reading) == 0);
    while (!GET(reading.done))
        progress(ends);
    CHECK(pthread_join(thread, NULL) == 0);
    lacuna_region_free(reading.into);
    CHECK(memcmp(sink + 900, data + 100, BYTES - 1000) == 0 && !sink[899]);
    lacuna_region_free(from);
}

/* A connection that was made without it. */
static void without_the_setting(const char *how)
{
    const char *settings[] = {"progress", how, NULL};
    struct ends ends = make_ends(settings);
    struct lacuna_send *send = NULL;
    struct lacuna_written written;
    CHECK(lacuna_remote_write_start(ends.near_end, 1, 0, data, 1, NULL, 1, &send) == LACUNA_USAGE);
    CHECK(lacuna_remote_write(ends.near_end, 1, 0, data, 1, NULL, 1) == LACUNA_USAGE);
    CHECK(lacuna_wait_written(ends.far_end, 1, &written, NULL) == LACUNA_USAGE);
    CHECK(strstr(lacuna_last_error(), "one_sided") && !send);
    free_ends(&ends);
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "threads";
    const char *settings[] = {"one_sided", "on", "progress", how, "mtu_bytes", "1024", NULL};
    struct ends ends = make_ends(settings);
    struct lacuna_region *late;
    size_t at;
    for (at = 0; at < BYTES; at++)
        data[at] = byte_of(at);
    writes(&ends);
    exclusive_bytes_are_written_once(&ends);
    reads(&ends);
    late = region_of(ends.far_context, memory, 0, 1, 0);
    free_ends(&ends);
    /* Behind its context and its connections. */
    CHECK(key_of(late) == key_of(late));
    lacuna_region_free(late);
    without_the_setting(how);
    puts("every key kept its promise");
    return 0;
}
