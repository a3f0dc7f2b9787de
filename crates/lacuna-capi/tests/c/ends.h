/* Two ends of one connection of lacuna.h in one process. */

#ifndef ENDS_H
#define ENDS_H

#include <pthread.h>

#include "check.h"

/* Far longer than any wait takes, under valgrind on a busy host too. */
enum { WAIT_MS = 240000 };

struct ends {
    struct lacuna_context *near_context, *far_context;
    struct lacuna_connection *near_end, *far_end;
    struct lacuna_listener *listener;
};

static inline void *accept_far_end(void *given)
{
    struct ends *ends = (struct ends *)given;
    CHECK(lacuna_listener_accept(ends->listener, &ends->far_end) == LACUNA_OK);
    return NULL;
}

/* Settings for both contexts and the connecting end: names and values in turn. */
static inline struct ends make_ends(const char *const *settings)
{
    struct lacuna_settings *chosen = NULL;
    struct ends ends;
    pthread_t accepting;
    uint16_t port = 0;
    char peer[40];
    memset(&ends, 0, sizeof(ends));
    CHECK(lacuna_settings_new(&chosen) == LACUNA_OK);
    CHECK(lacuna_settings_set(chosen, "bind", "127.0.0.1") == LACUNA_OK);
    for (; *settings; settings += 2)
        CHECK(lacuna_settings_set(chosen, settings[0], settings[1]) == LACUNA_OK);
    CHECK(lacuna_context_new(chosen, &ends.near_context) == LACUNA_OK);
    CHECK(lacuna_context_new(chosen, &ends.far_context) == LACUNA_OK);
    CHECK(lacuna_listener_new(ends.far_context, "127.0.0.1:0", NULL, &ends.listener) == LACUNA_OK);
    CHECK(lacuna_listener_port(ends.listener, &port) == LACUNA_OK);
    CHECK(pthread_create(&accepting, NULL, accept_far_end, &ends) == 0);
    snprintf(peer, sizeof(peer), "127.0.0.1:%u", (unsigned)port);
    CHECK(lacuna_connect(ends.near_context, peer, chosen, &ends.near_end) == LACUNA_OK);
    CHECK(pthread_join(accepting, NULL) == 0);
    lacuna_listener_free(ends.listener);
    lacuna_settings_free(chosen);
    return ends;
}

/* Without threads, each end goes on only while somebody calls. */
static inline void progress(struct ends *ends)
{
    CHECK(lacuna_context_progress(ends->near_context, NULL) == LACUNA_OK);
    CHECK(lacuna_context_progress(ends->far_context, NULL) == LACUNA_OK);
}

static inline void free_ends(struct ends *ends)
{
    lacuna_connection_free(ends->near_end);
    lacuna_connection_free(ends->far_end);
    lacuna_context_free(ends->near_context);
    lacuna_context_free(ends->far_context);
}

static inline unsigned char byte_of(size_t at)
{
    return (unsigned char)(at * 11 + (at >> 10) + 1);
}

#endif
