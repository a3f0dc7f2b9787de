/* A reliable connection with lacuna.h: messages of any length, each whole or an
 * error with a reason by its deadline.
 *
 *     reliable server
 *     reliable client 127.0.0.1:7412
 */

#define _POSIX_C_SOURCE 200809L

#include <lacuna.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGES = 20, MESSAGE_BYTES = 3 * 1000 * 1000, TIMEOUT_MS = 20000 };

static void check(int result, const char *call)
{
    if (result != LACUNA_OK) {
        fprintf(stderr, "%s: %s\n", call, lacuna_last_error());
        exit(1);
    }
}

static unsigned char byte_of(unsigned message, size_t at)
{
    return (unsigned char)(message * 17 + at + (at >> 8) * 5);
}

static void describe(struct lacuna_connection *connection)
{
    char text[400];
    check(lacuna_describe(connection, text, sizeof(text), NULL), "lacuna_describe");
    printf("%s\n", text);
}

static void serve(const char *address)
{
    struct lacuna_context *context = NULL;
    struct lacuna_listener *listener = NULL;
    struct lacuna_connection *connection = NULL;
    unsigned char *buffer = (unsigned char *)malloc(MESSAGE_BYTES);
    uint16_t port = 0;
    unsigned message;
    size_t at;
    if (!buffer)
        exit(1);
    check(lacuna_context_new(NULL, &context), "lacuna_context_new");
    check(lacuna_listener_new(context, address, NULL, &listener), "lacuna_listener_new");
    check(lacuna_listener_port(listener, &port), "lacuna_listener_port");
    printf("listening on port %u\n", (unsigned)port);
    fflush(stdout);
    check(lacuna_listener_accept(listener, &connection), "lacuna_listener_accept");
    describe(connection);
    for (message = 0; message < MESSAGES; message++) {
        struct lacuna_receive *receive = NULL;
        struct lacuna_received received;
        check(lacuna_receive_post(connection, buffer, MESSAGE_BYTES, &receive),
              "lacuna_receive_post");
        check(lacuna_receive_wait(receive, TIMEOUT_MS), "lacuna_receive_wait");
        check(lacuna_receive_complete(receive, &received), "lacuna_receive_complete");
        if (!received.is_complete || !received.has_immediate || received.immediate != message)
            exit(1);
        for (at = 0; at < received.length; at++)
            if (buffer[at] != byte_of(message, at)) {
                fprintf(stderr, "message %u is wrong at byte %zu\n", message, at);
                exit(1);
            }
    }
    printf("received %d messages, every byte checked\n", MESSAGES);
    lacuna_connection_free(connection);
    lacuna_listener_free(listener);
    lacuna_context_free(context);
    free(buffer);
}

static void send_all(const char *peer)
{
    struct lacuna_settings *settings = NULL;
    struct lacuna_context *context = NULL;
    struct lacuna_connection *connection = NULL;
    unsigned char *data = (unsigned char *)malloc(MESSAGE_BYTES);
    char stats[4000];
    uint32_t message;
    size_t at;
    if (!data)
        exit(1);
    check(lacuna_settings_new(&settings), "lacuna_settings_new");
    check(lacuna_settings_set(settings, "mode", "sr"), "lacuna_settings_set");
    check(lacuna_context_new(settings, &context), "lacuna_context_new");
    check(lacuna_connect(context, peer, settings, &connection), "lacuna_connect");
    describe(connection);
    for (message = 0; message < MESSAGES; message++) {
        size_t length = MESSAGE_BYTES - message;
        for (at = 0; at < length; at++)
            data[at] = byte_of(message, at);
        check(lacuna_write(connection, data, length, &message, TIMEOUT_MS), "lacuna_write");
    }
    check(lacuna_flush(connection, TIMEOUT_MS), "lacuna_flush");
    check(lacuna_stats_json(connection, stats, sizeof(stats), NULL), "lacuna_stats_json");
    printf("%s\n", stats);
    lacuna_connection_free(connection);
    lacuna_context_free(context);
    lacuna_settings_free(settings);
    free(data);
}

int main(int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "server") == 0)
        serve(argc > 2 ? argv[2] : "[::]:7412");
    else if (argc == 3 && strcmp(argv[1], "client") == 0)
        send_all(argv[2]);
    else {
        fprintf(stderr, "usage: reliable server [ADDRESS:PORT]\n"
                        "       reliable client HOST:PORT\n");
        return 2;
    }
    return 0;
}
