/* The same for lacuna.h: NULL, used up objects, wrong settings and addresses. */

#include "check.h"

#define CHECK_CODE(call, code, text)                \
    do {                                            \
        CHECK((call) == (code));                    \
        CHECK(strstr(lacuna_last_error(), text));   \
    } while (0)

int main(void)
{
    struct lacuna_settings *settings = NULL;
    struct lacuna_context *context = NULL;
    struct lacuna_listener *listener = NULL;
    struct lacuna_connection *connection = NULL;
    struct lacuna_receive *receive = NULL;
    struct lacuna_send *send = NULL;
    struct lacuna_region *region = NULL;
    struct lacuna_window *window = NULL;
    struct lacuna_completion_queue *queue = NULL;
    const uint8_t *bits = NULL;
    uint32_t number = 0;
    size_t size = 0;
    char byte = 0;
    uint16_t port = 0;
    uint64_t tag = 0;
    int flag = 0;

    CHECK(strlen(lacuna_version()) >= 5);
    CHECK_CODE(lacuna_settings_new(NULL), LACUNA_USAGE, "settings is NULL");
    CHECK(lacuna_settings_new(&settings) == LACUNA_OK);
    CHECK_CODE(lacuna_settings_set(NULL, "mode", "sr"), LACUNA_USAGE, "NULL");
    CHECK_CODE(lacuna_settings_set(settings, NULL, "sr"), LACUNA_USAGE, "name is NULL");
    CHECK_CODE(lacuna_settings_set(settings, "mode", NULL), LACUNA_USAGE, "value is NULL");
    CHECK_CODE(lacuna_settings_set(settings, "mode", "\xff\xfe"), LACUNA_USAGE, "UTF-8");
    CHECK_CODE(lacuna_settings_set(settings, "mood", "sr"), LACUNA_USAGE, "no setting");
    CHECK_CODE(lacuna_settings_set(settings, "channels", "17x"), LACUNA_USAGE, "channels");
    CHECK(lacuna_settings_set(settings, "channels", "40") == LACUNA_OK);
    CHECK_CODE(lacuna_context_new(settings, &context), LACUNA_USAGE, "40 channels");
    CHECK(lacuna_settings_set(settings, "channels", "1") == LACUNA_OK);
    CHECK(lacuna_settings_set(settings, "bind", "203.0.113.7") == LACUNA_OK);
    CHECK_CODE(lacuna_context_new(settings, &context), LACUNA_SYSTEM, "203.0.113.7");
    CHECK(!context);
    CHECK(lacuna_settings_set(settings, "bind", "127.0.0.1") == LACUNA_OK);
    CHECK_CODE(lacuna_settings_set(settings, "ecn", "perhaps"), LACUNA_USAGE, "on or off");
    CHECK_CODE(lacuna_settings_set(settings, "silence_ms", "0"), LACUNA_USAGE, "more than zero");
    CHECK_CODE(lacuna_settings_set(settings, "cc", "reno"), LACUNA_USAGE, "bbr, cubic, fixed");
    /* A folder is no memory. */
    CHECK(lacuna_settings_set(settings, "path_memory", ".") == LACUNA_OK);
    CHECK_CODE(lacuna_context_new(settings, &context), LACUNA_SYSTEM, "cannot use . as path");
    CHECK(lacuna_settings_set(settings, "path_memory", "") == LACUNA_OK);
    CHECK(lacuna_settings_set(settings, "pcap", "no such folder/file") == LACUNA_OK);
    CHECK_CODE(lacuna_context_new(settings, &context), LACUNA_SYSTEM, "cannot write no such");
    CHECK(lacuna_settings_set(settings, "pcap", "") == LACUNA_OK);
    CHECK_CODE(lacuna_settings_set(settings, "pcap_limit_bytes", "0"), LACUNA_USAGE, "more than");
    CHECK(!context);
    CHECK_CODE(lacuna_context_new(NULL, NULL), LACUNA_USAGE, "context is NULL");
    CHECK(lacuna_context_new(NULL, &context) == LACUNA_OK);
    CHECK_CODE(lacuna_context_progress(NULL, NULL), LACUNA_USAGE, "context is NULL");
    CHECK(lacuna_context_progress(context, &flag) == LACUNA_OK && flag == 0);
    CHECK_CODE(lacuna_listener_new(context, "somewhere", NULL, &listener), LACUNA_USAGE,
               "ADDRESS:PORT");
    CHECK_CODE(lacuna_listener_new(context, "[fe80::1]:0", NULL, &listener), LACUNA_USAGE,
               "use fe80::1%INTERFACE");
    CHECK_CODE(lacuna_listener_new(context, "[fe80::1%nothere0]:0", NULL, &listener), LACUNA_USAGE,
               "no network interface");
    CHECK_CODE(lacuna_connect(context, "[fe80::1]:7400", NULL, &connection), LACUNA_USAGE,
               "use fe80::1%INTERFACE");
    CHECK_CODE(lacuna_connect(context, "[fe80::1%nothere0]:7400", NULL, &connection), LACUNA_USAGE,
               "no network interface");
    CHECK_CODE(lacuna_listener_new(NULL, "[::]:0", NULL, &listener), LACUNA_USAGE, "NULL");
    CHECK(lacuna_settings_set(settings, "cc", "fixed") == LACUNA_OK);
    CHECK_CODE(lacuna_listener_new(context, "127.0.0.1:0", settings, &listener), LACUNA_USAGE,
               "needs a rate");
    CHECK_CODE(lacuna_connect(context, "127.0.0.1:1", settings, &connection), LACUNA_USAGE,
               "needs a rate");
    CHECK(lacuna_listener_new(context, "127.0.0.1:0", NULL, &listener) == LACUNA_OK);
    CHECK_CODE(lacuna_listener_port(listener, NULL), LACUNA_USAGE, "port is NULL");
    CHECK(lacuna_listener_port(listener, &port) == LACUNA_OK && port != 0);
    CHECK_CODE(lacuna_listener_accept(NULL, &connection), LACUNA_USAGE, "NULL");
    lacuna_listener_free(listener);
    /* Nobody listens there any more. */
    {
        char peer[40];
        snprintf(peer, sizeof(peer), "127.0.0.1:%u", (unsigned)port);
        CHECK_CODE(lacuna_connect(context, peer, NULL, &connection), LACUNA_PEER, "cannot reach");
    }
    CHECK_CODE(lacuna_connect(context, "somewhere", NULL, &connection), LACUNA_USAGE,
               "HOST:PORT");
    CHECK_CODE(lacuna_connect(context, "127.0.0.1:0", NULL, &connection), LACUNA_USAGE,
               "HOST:PORT");
    CHECK_CODE(lacuna_connect(context, NULL, NULL, &connection), LACUNA_USAGE, "peer is NULL");
    CHECK_CODE(lacuna_connect(NULL, "x:1", NULL, &connection), LACUNA_USAGE, "NULL");
    CHECK_CODE(lacuna_write(NULL, &byte, 1, NULL, 1), LACUNA_USAGE, "connection is NULL");
    CHECK_CODE(lacuna_read(NULL, &byte, 1, 1, NULL), LACUNA_USAGE, "connection is NULL");
    CHECK_CODE(lacuna_wait_clear_to_send(NULL, 1), LACUNA_USAGE, "connection is NULL");
    CHECK_CODE(lacuna_flush(NULL, 1), LACUNA_USAGE, "connection is NULL");
    CHECK_CODE(lacuna_describe(NULL, &byte, 1, NULL), LACUNA_USAGE, "connection is NULL");
    CHECK_CODE(lacuna_stats_json(NULL, &byte, 1, NULL), LACUNA_USAGE, "connection is NULL");
    CHECK_CODE(lacuna_tag(NULL, &tag), LACUNA_USAGE, "connection is NULL");
    CHECK_CODE(lacuna_receive_post(NULL, &byte, 1, &receive), LACUNA_USAGE, "NULL");
    CHECK_CODE(lacuna_receive_wait(NULL, 1), LACUNA_USAGE, "receive is NULL");
    CHECK_CODE(lacuna_receive_status(NULL, NULL), LACUNA_USAGE, "receive is NULL");
    CHECK_CODE(lacuna_receive_has_chunk(NULL, 0, &flag), LACUNA_USAGE, "receive is NULL");
    CHECK_CODE(lacuna_receive_bitmap(NULL, &bits, &size), LACUNA_USAGE, "receive is NULL");
    CHECK_CODE(lacuna_receive_complete(NULL, NULL), LACUNA_USAGE, "receive is NULL");
    CHECK_CODE(lacuna_receive_post_with(NULL, &byte, 1, NULL, &receive), LACUNA_USAGE, "NULL");
    CHECK_CODE(lacuna_receive_wait_over(NULL, 1, NULL), LACUNA_USAGE, "receive is NULL");
    CHECK_CODE(lacuna_receive_take(NULL, NULL, NULL), LACUNA_USAGE, "receive is NULL");
    CHECK_CODE(lacuna_map_packets(NULL, NULL, 0, &size), LACUNA_USAGE, "map is NULL");
    CHECK_CODE(lacuna_map_gaps(NULL, NULL, 0, &size), LACUNA_USAGE, "map is NULL");
    CHECK_CODE(lacuna_send_start_offered(NULL, &byte, 1, NULL, 1, &send), LACUNA_USAGE, "NULL");
    CHECK_CODE(lacuna_send_offer(NULL, 0, 1), LACUNA_USAGE, "send is NULL");
    CHECK_CODE(lacuna_region_new(NULL, &byte, 1, NULL, &region), LACUNA_USAGE, "context is NULL");
    CHECK_CODE(lacuna_region_key(NULL, &number), LACUNA_USAGE, "region is NULL");
    CHECK_CODE(lacuna_region_revoke(NULL), LACUNA_USAGE, "region is NULL");
    CHECK_CODE(lacuna_region_window(NULL, 0, 1, 0, &window), LACUNA_USAGE, "region is NULL");
    CHECK_CODE(lacuna_window_key(NULL, &number), LACUNA_USAGE, "window is NULL");
    CHECK_CODE(lacuna_remote_write(NULL, 1, 0, &byte, 1, NULL, 1), LACUNA_USAGE, "NULL");
    CHECK_CODE(lacuna_remote_read(NULL, 1, 0, 1, NULL, 0, 1, NULL), LACUNA_USAGE, "NULL");
    CHECK_CODE(lacuna_wait_written(NULL, 1, NULL, NULL), LACUNA_USAGE, "connection is NULL");
    CHECK(!region && !window && number == 0);
    CHECK_CODE(lacuna_connection_class(NULL, 1, &connection), LACUNA_USAGE, "connection is NULL");
    CHECK_CODE(lacuna_completion_queue_new(NULL, 1, &queue), LACUNA_USAGE, "context is NULL");
    CHECK_CODE(lacuna_completion_queue_new(context, 0, &queue), LACUNA_USAGE, "entries");
    CHECK_CODE(lacuna_completion_queue_new(context, 1, NULL), LACUNA_USAGE, "queue is NULL");
    CHECK_CODE(lacuna_completion_queue_poll(NULL, NULL, 0, 0, &size), LACUNA_USAGE, "NULL");
    CHECK_CODE(lacuna_completion_queue_descriptor(NULL, &flag), LACUNA_USAGE, "queue is NULL");
    CHECK_CODE(lacuna_completion_queue_arm(NULL, 0, NULL), LACUNA_USAGE, "queue is NULL");
    CHECK_CODE(lacuna_complete_to(NULL, NULL), LACUNA_USAGE, "connection is NULL");
    CHECK_CODE(lacuna_queue_send(NULL, &byte, 1, NULL, 1, 0, 1), LACUNA_USAGE, "NULL");
    CHECK_CODE(lacuna_queue_receive(NULL, &byte, 1, NULL, 1), LACUNA_USAGE, "connection is NULL");
    CHECK_CODE(lacuna_queue_remote_write(NULL, 1, 0, &byte, 1, NULL, 1, 0, 1), LACUNA_USAGE,
               "connection is NULL");
    CHECK_CODE(lacuna_queue_remote_read(NULL, 1, 0, 1, NULL, 0, 1, 1), LACUNA_USAGE,
               "connection is NULL");
    CHECK_CODE(lacuna_queue_written(NULL, 1), LACUNA_USAGE, "connection is NULL");
    CHECK(!queue);
    lacuna_completion_queue_free(NULL);
    lacuna_region_free(NULL);
    lacuna_window_free(NULL);
    lacuna_map_free(NULL);
    CHECK_CODE(lacuna_send_start(NULL, &byte, 1, NULL, 1, &send), LACUNA_USAGE, "NULL");
    CHECK_CODE(lacuna_send_poll(NULL), LACUNA_USAGE, "send is NULL");
    CHECK_CODE(lacuna_send_wait(NULL), LACUNA_USAGE, "send is NULL");
    CHECK_CODE(lacuna_send_free(NULL), LACUNA_USAGE, "send is NULL");
    CHECK(!connection && !receive && !send && !bits && size == 0);
    lacuna_connection_free(NULL);
    lacuna_listener_free(NULL);
    lacuna_context_free(NULL);
    lacuna_settings_free(NULL);
    lacuna_context_free(context);
    lacuna_settings_free(settings);
    puts("all misuse answered");
    return 0;
}
