/* Receives that end in time: by a deadline, with a map of what came. A write of which
 * only parts are offered leaves gaps that the test knows.
 *
 *     bounded threads|manual
 */

#define _POSIX_C_SOURCE 200809L

#include <time.h>

#include "ends.h"

enum { BYTES = 100000 };

static unsigned char data[BYTES], buffer[BYTES];

static struct lacuna_receive *post(struct ends *ends, uint64_t deadline_us, uint8_t missing)
{
    struct lacuna_receive_options options;
    struct lacuna_receive *receive = NULL;
    memset(&options, 0, sizeof(options));
    options.deadline_us = deadline_us;
    options.missing = missing;
    memset(buffer, 0xaa, sizeof(buffer));
    CHECK(lacuna_receive_post_with(ends->far_end, buffer, BYTES, &options, &receive) == LACUNA_OK);
    return receive;
}

static void wait_over(struct ends *ends, struct lacuna_receive *receive, uint32_t wanted)
{
    uint32_t reason = 0;
    int result;
    while ((result = lacuna_receive_wait_over(receive, 0, &reason)) == LACUNA_DEADLINE)
        progress(ends);
    CHECK(result == LACUNA_OK && reason == wanted);
}

static void everything_comes(struct ends *ends)
{
    struct lacuna_receive *receive = post(ends, 0, LACUNA_MISSING_USUAL);
    struct lacuna_send *send = NULL;
    struct lacuna_ended ended;
    struct lacuna_map *map = (struct lacuna_map *)&ended;
    uint32_t immediate = 7;
    CHECK(lacuna_send_start(ends->near_end, data, BYTES - 1, &immediate, WAIT_MS, &send) ==
          LACUNA_OK);
    wait_over(ends, receive, LACUNA_REASON_WHOLE);
    CHECK(lacuna_receive_take(receive, &ended, &map) == LACUNA_OK);
    CHECK(!map && ended.is_complete && ended.reason == LACUNA_REASON_WHOLE);
    CHECK(ended.has_length && ended.length == BYTES - 1 && ended.bytes == BYTES - 1);
    CHECK(ended.has_immediate && ended.immediate == 7);
    CHECK(ended.packets == (BYTES - 1 + ended.packet_bytes - 1) / ended.packet_bytes);
    CHECK(ended.has_arrivals && ended.first_ago_ns >= ended.last_ago_ns);
    CHECK(ended.first_ago_ns < (uint64_t)WAIT_MS * 1000000);
    CHECK(memcmp(buffer, data, BYTES - 1) == 0 && buffer[BYTES - 1] == 0xaa);
    CHECK(lacuna_receive_take(receive, &ended, NULL) == LACUNA_USAGE);
    CHECK(lacuna_send_free(send) == LACUNA_OK);
}

/* Only the first packets are offered, and one in the middle. */
static void a_part_comes(struct ends *ends, uint8_t missing)
{
    struct lacuna_receive *receive = post(ends, 300000, missing);
    struct lacuna_send *send = NULL;
    struct lacuna_received status;
    struct lacuna_ended ended;
    struct lacuna_map *map = NULL;
    struct lacuna_range gaps[4], one;
    uint8_t bits[BYTES / 64 / 8];
    unsigned char filled = missing == LACUNA_MISSING_KEEP ? 0xaa : 0;
    size_t packet, count = 0, size = 0, at;
    CHECK(lacuna_receive_status(receive, &status) == LACUNA_OK);
    packet = (size_t)status.chunk_bytes;
    CHECK(lacuna_send_start_offered(ends->near_end, data, BYTES, NULL, WAIT_MS, &send) == LACUNA_OK);
    CHECK(lacuna_send_offer(send, 0, packet) == LACUNA_OK);
    CHECK(lacuna_send_offer(send, packet, packet) == LACUNA_OK);
    CHECK(lacuna_send_offer(send, 10 * packet, packet) == LACUNA_OK);
    CHECK(lacuna_send_offer(send, BYTES - 1, 2) == LACUNA_USAGE);
    CHECK(lacuna_send_poll(send) == LACUNA_RETRY);
    wait_over(ends, receive, LACUNA_REASON_DEADLINE);
    CHECK(lacuna_receive_wait(receive, 0) == LACUNA_DEADLINE);
    CHECK(lacuna_receive_take(receive, &ended, &map) == LACUNA_OK);
    CHECK(map && !ended.is_complete && ended.reason == LACUNA_REASON_DEADLINE);
    CHECK(ended.packet_bytes == packet && ended.bytes == 3 * packet && !ended.has_length);
    CHECK(ended.has_arrivals && ended.packets == (BYTES + packet - 1) / packet);
    CHECK(lacuna_map_gaps(map, gaps, 4, &count) == LACUNA_OK && count == 2);
    CHECK(gaps[0].offset == 2 * packet && gaps[0].length == 8 * packet);
    CHECK(gaps[1].offset == 11 * packet && gaps[1].length == BYTES - 11 * packet);
    CHECK(lacuna_map_gaps(map, &one, 1, &count) == LACUNA_OK && count == 2);
    CHECK(one.offset == gaps[0].offset && one.length == gaps[0].length);
    memset(bits, 0xff, sizeof(bits));
    CHECK(lacuna_map_packets(map, bits, sizeof(bits), &size) == LACUNA_OK);
    CHECK(size == (ended.packets + 7) / 8 && bits[0] == 3 && bits[1] == 4 && bits[2] == 0);
    CHECK(bits[size] == 0xff);
    lacuna_map_free(map);
    for (at = 0; at < BYTES; at++) {
        size_t number = at / packet;
        int is_here = number < 2 || number == 10;
        CHECK(buffer[at] == (is_here ? data[at] : filled));
    }
    CHECK(lacuna_send_free(send) == LACUNA_OK);
}

/* A receive that nobody sends to ends at its deadline, and not before. */
static void nothing_comes(struct ends *ends)
{
    struct timespec before, after;
    struct lacuna_receive *receive;
    struct lacuna_ended ended;
    struct lacuna_map *map = NULL;
    struct lacuna_range gap;
    size_t count = 0;
    int64_t took_us;
    clock_gettime(CLOCK_MONOTONIC, &before);
    receive = post(ends, 50000, LACUNA_MISSING_ZERO);
    wait_over(ends, receive, LACUNA_REASON_DEADLINE);
    clock_gettime(CLOCK_MONOTONIC, &after);
    took_us = (int64_t)(after.tv_sec - before.tv_sec) * 1000000 +
              (after.tv_nsec - before.tv_nsec) / 1000;
    CHECK(took_us >= 50000);
    CHECK(lacuna_receive_take(receive, &ended, &map) == LACUNA_OK && map);
    CHECK(!ended.has_arrivals && ended.bytes == 0 && !ended.has_immediate);
    CHECK(lacuna_map_gaps(map, &gap, 1, &count) == LACUNA_OK && count == 1);
    CHECK(gap.offset == 0 && gap.length == BYTES && buffer[0] == 0 && buffer[BYTES - 1] == 0);
    lacuna_map_free(map);
}

/* Taken back at once; a map is good without its connection. */
static struct lacuna_map *taken_back(struct ends *ends)
{
    struct lacuna_receive *receive = post(ends, 0, LACUNA_MISSING_KEEP);
    struct lacuna_ended ended;
    struct lacuna_map *map = NULL;
    CHECK(lacuna_receive_take(receive, &ended, &map) == LACUNA_OK && map);
    CHECK(ended.reason == LACUNA_REASON_CANCELLED && buffer[0] == 0xaa);
    return map;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "threads";
    const char *modes[] = {"bounded:4", "best-effort", "sr"};
    size_t mode, at, count = 0;
    for (at = 0; at < BYTES; at++)
        data[at] = byte_of(at);
    for (mode = 0; mode < 3; mode++) {
        const char *settings[] = {"mode", modes[mode], "progress", how, "mtu_bytes", "1024", NULL};
        struct ends ends = make_ends(settings);
        struct lacuna_map *map;
        everything_comes(&ends);
        a_part_comes(&ends, mode < 2 ? LACUNA_MISSING_USUAL : LACUNA_MISSING_ZERO);
        everything_comes(&ends);
        a_part_comes(&ends, LACUNA_MISSING_KEEP);
        nothing_comes(&ends);
        map = taken_back(&ends);
        free_ends(&ends);
        CHECK(lacuna_map_gaps(map, NULL, 0, &count) == LACUNA_OK && count == 1);
        lacuna_map_free(map);
    }
    puts("every gap was told");
    return 0;
}
