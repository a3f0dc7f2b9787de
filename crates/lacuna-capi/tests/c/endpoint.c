/* lacuna.h over loopback: an asynchronous write into a receive with a live bitmap,
 * deadlines, a peer that goes. The two ends are two threads. */

#define _POSIX_C_SOURCE 200809L

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "check.h"

/* The waits are far longer than any takes, under valgrind on a busy host too: the
 * program's watch ends one that hangs. */
enum { BYTES = 3 << 20, WAIT_MS = 240000 };

static struct lacuna_listener *listener;
/* The server has looked at its last receive. */
static int looked[2];

static unsigned char byte_of(size_t at)
{
    return (unsigned char)(at * 11 + (at >> 10));
}

static void *serve(void *unused)
{
    struct lacuna_connection *connection = NULL;
    struct lacuna_receive *receive = NULL, *unfilled = NULL;
    struct lacuna_received received;
    unsigned char *buffer = (unsigned char *)malloc(BYTES);
    const uint8_t *bits = NULL;
    size_t bytes = 0, at;
    uint64_t tag = 0;
    int is_here = 0;
    (void)unused;
    CHECK(buffer);
    CHECK(lacuna_listener_accept(listener, &connection) == LACUNA_OK);
    CHECK(lacuna_tag(connection, &tag) == LACUNA_OK && tag == 42);
    CHECK(lacuna_receive_post(connection, buffer, BYTES, &receive) == LACUNA_OK);
    CHECK(lacuna_receive_bitmap(receive, &bits, &bytes) == LACUNA_OK);
    CHECK(bytes == BYTES / 4096 / 8);
    CHECK(lacuna_receive_wait(receive, WAIT_MS) == LACUNA_OK);
    CHECK(bits[0] == 0xff && bits[bytes - 1] == 0xff);
    CHECK(lacuna_receive_has_chunk(receive, 5, &is_here) == LACUNA_OK && is_here);
    CHECK(lacuna_receive_has_chunk(receive, 1u << 30, &is_here) == LACUNA_OK && !is_here);
    CHECK(lacuna_receive_status(receive, &received) == LACUNA_OK);
    CHECK(received.is_complete && received.has_immediate && received.immediate == 0xfeed);
    CHECK(lacuna_receive_complete(receive, &received) == LACUNA_OK);
    CHECK(received.length == BYTES && received.chunks == received.chunks_done);
    CHECK(lacuna_receive_complete(receive, NULL) == LACUNA_USAGE);
    for (at = 0; at < BYTES; at++)
        CHECK(buffer[at] == byte_of(at));
    /* A blocking read of a short message. */
    CHECK(lacuna_read(connection, buffer, BYTES, WAIT_MS, &received) == LACUNA_OK);
    CHECK(received.length == 5 && memcmp(buffer, "hello", 5) == 0 && !received.has_immediate);
    /* Nothing comes; then the peer goes, which ends the wait. */
    CHECK(lacuna_receive_post(connection, buffer, 100, &unfilled) == LACUNA_OK);
    CHECK(lacuna_receive_wait(unfilled, 0) == LACUNA_DEADLINE);
    CHECK(write(looked[1], "l", 1) == 1);
    CHECK(lacuna_receive_wait(unfilled, WAIT_MS) == LACUNA_PEER);
    lacuna_connection_free(connection);
    free(buffer);
    return NULL;
}

/* Bytes of a capture of both ends: a header, then records with a header each. */
static long captured(const char *path, long *records)
{
    unsigned char header[24];
    long bytes = 24;
    FILE *file = fopen(path, "rb");
    CHECK(file && fread(header, 1, 24, file) == 24 && header[0] == 0x4d && header[20] == 101);
    for (*records = 0; fread(header, 1, 16, file) == 16; ++*records) {
        long frame = header[8] + header[9] * 256L;
        CHECK(fseek(file, frame, SEEK_CUR) == 0);
        bytes += 16 + frame;
    }
    CHECK(fseek(file, 0, SEEK_END) == 0 && ftell(file) == bytes);
    fclose(file);
    return bytes;
}

int main(void)
{
    struct lacuna_settings *settings = NULL;
    struct lacuna_context *here = NULL, *there = NULL;
    struct lacuna_connection *connection = NULL;
    struct lacuna_send *send = NULL;
    unsigned char *data = (unsigned char *)malloc(BYTES);
    uint32_t immediate = 0xfeed;
    uint16_t port = 0;
    char pcap[80], peer[40], text[8], described[1000];
    size_t at, length = 0;
    long records = 0;
    pthread_t server;
    int result;
    CHECK(data && pipe(looked) == 0);
    CHECK(lacuna_settings_new(&settings) == LACUNA_OK);
    CHECK(lacuna_settings_set(settings, "tag", "42") == LACUNA_OK);
    CHECK(lacuna_settings_set(settings, "bind", "127.0.0.1") == LACUNA_OK);
    CHECK(lacuna_settings_set(settings, "ecn", "off") == LACUNA_OK);
    CHECK(lacuna_settings_set(settings, "cc", "bbr") == LACUNA_OK);
    CHECK(lacuna_settings_set(settings, "rate_bits_per_s", "5000000000") == LACUNA_OK);
    snprintf(pcap, sizeof(pcap), "/tmp/lacuna-endpoint-%ld.pcap", (long)getpid());
    CHECK(lacuna_settings_set(settings, "pcap", pcap) == LACUNA_OK);
    CHECK(lacuna_context_new(settings, &here) == LACUNA_OK);
    CHECK(lacuna_context_new(settings, &there) == LACUNA_OK);
    CHECK(lacuna_listener_new(there, "127.0.0.1:0", NULL, &listener) == LACUNA_OK);
    CHECK(lacuna_listener_port(listener, &port) == LACUNA_OK);
    CHECK(pthread_create(&server, NULL, serve, NULL) == 0);
    snprintf(peer, sizeof(peer), "127.0.0.1:%u", (unsigned)port);
    CHECK(lacuna_connect(here, peer, settings, &connection) == LACUNA_OK);
    for (at = 0; at < BYTES; at++)
        data[at] = byte_of(at);
    CHECK(lacuna_wait_clear_to_send(connection, WAIT_MS) == LACUNA_OK);
    CHECK(lacuna_send_start(connection, data, BYTES, &immediate, WAIT_MS, &send) == LACUNA_OK);
    while ((result = lacuna_send_poll(send)) == LACUNA_RETRY)
        sched_yield();
    CHECK(result == LACUNA_OK && lacuna_send_wait(send) == LACUNA_OK);
    CHECK(lacuna_send_free(send) == LACUNA_OK);
    CHECK(lacuna_send_free(send) == LACUNA_USAGE && lacuna_send_poll(send) == LACUNA_USAGE);
    CHECK(lacuna_write(connection, "hello", 5, NULL, WAIT_MS) == LACUNA_OK);
    CHECK(lacuna_flush(connection, WAIT_MS) == LACUNA_OK);
    /* As snprintf. */
    CHECK(lacuna_describe(connection, text, sizeof(text), &length) == LACUNA_OK);
    CHECK(strcmp(text, "mode au") == 0 && length > sizeof(text));
    CHECK(lacuna_describe(connection, described, sizeof(described), NULL) == LACUNA_OK);
    CHECK(strstr(described, "bbr from 5.000 Gbit/s"));
    CHECK(lacuna_stats_json(connection, NULL, 0, &length) == LACUNA_OK && length > 100);
    /* Longer than what is posted. */
    CHECK(lacuna_wait_clear_to_send(connection, WAIT_MS) == LACUNA_OK);
    CHECK(lacuna_write(connection, data, 101, NULL, WAIT_MS) == LACUNA_USAGE);
    CHECK(read(looked[0], text, 1) == 1);
    lacuna_connection_free(connection);
    CHECK(pthread_join(server, NULL) == 0);
    lacuna_listener_free(listener);
    lacuna_context_free(here);
    lacuna_context_free(there);
    lacuna_settings_free(settings);
    /* Both contexts wrote to one file. */
    CHECK(captured(pcap, &records) > 2 * BYTES && records > 10);
    CHECK(unlink(pcap) == 0);
    free(data);
    puts("done");
    return 0;
}
