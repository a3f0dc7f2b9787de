/* Few file descriptors: what this machine lacks is LACUNA_SYSTEM with a text that names
 * the limit, wherever it is met, and a listener takes those who wait once it has some. */

#define _POSIX_C_SOURCE 200809L

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include "check.h"

enum { ENOUGH = 64 };

static struct lacuna_context *context;
static char address[40];

static void allow(rlim_t count)
{
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = count;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static void *connect_late(void *connected)
{
    CHECK(lacuna_connect(context, address, NULL, (struct lacuna_connection **)connected) ==
          LACUNA_OK);
    return NULL;
}

/* Whether it worked; if not, for want of descriptors. */
static int worked(int result)
{
    CHECK(result == LACUNA_OK ||
          (result == LACUNA_SYSTEM && strstr(lacuna_last_error(), "ulimit -n")));
    return result == LACUNA_OK;
}

int main(void)
{
    struct lacuna_listener *listener = NULL;
    struct lacuna_connection *near_end = NULL, *far_end = NULL;
    struct sdr_context *sockets = NULL;
    struct sdr_dev_attr dev = {2, 0};
    pthread_t connecting;
    rlim_t count;
    uint16_t port = 0;

    for (count = 3; count < ENOUGH && !sockets; count++) {
        allow(count);
        sockets = sdr_context_create("udp", &dev);
        CHECK(sockets || strstr(lacuna_last_error(), "ulimit -n"));
    }
    CHECK(sockets && sdr_context_destroy(sockets) == SDR_SUCCESS);
    for (count = 3; count < ENOUGH; count++) {
        allow(count);
        if (worked(lacuna_context_new(NULL, &context)))
            break;
    }
    CHECK(context);
    for (; count < ENOUGH; count++) {
        allow(count);
        if (worked(lacuna_listener_new(context, "127.0.0.1:0", NULL, &listener)))
            break;
    }
    CHECK(listener);
    CHECK(lacuna_listener_port(listener, &port) == LACUNA_OK);
    snprintf(address, sizeof(address), "127.0.0.1:%u", (unsigned)port);
    allow(3);
    CHECK(!worked(lacuna_connect(context, address, NULL, &near_end)));
    snprintf(address, sizeof(address), "localhost:%u", (unsigned)port);
    CHECK(!worked(lacuna_connect(context, address, NULL, &near_end)));
    allow(ENOUGH);
    CHECK(pthread_create(&connecting, NULL, connect_late, &near_end) == 0);
    CHECK(lacuna_listener_accept(listener, &far_end) == LACUNA_OK);
    CHECK(pthread_join(connecting, NULL) == 0);
    lacuna_connection_free(near_end);
    lacuna_connection_free(far_end);
    lacuna_listener_free(listener);
    lacuna_context_free(context);
    puts("each lack was named");
    return 0;
}
