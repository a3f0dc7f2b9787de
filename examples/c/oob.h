/* Out of band: one TCP connection between the two programs of an example, for
 * what they tell each other besides the messages themselves. An application has
 * means of its own for this: a job launcher, a key-value store, MPI. */

#ifndef EXAMPLE_OOB_H
#define EXAMPLE_OOB_H

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <lacuna.h>

/* Ends the program with one line that says why. */
static inline void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

/* The same for a call of the library. */
static inline void fail_call(const char *call)
{
    fail("%s: %s", call, lacuna_last_error());
}

static inline void oob_send(int oob, const void *data, size_t length)
{
    const char *at = (const char *)data;
    while (length > 0) {
        ssize_t sent = send(oob, at, length, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            fail("the other program is gone: %s", strerror(errno));
        at += sent;
        length -= (size_t)sent;
    }
}

static inline void oob_receive(int oob, void *data, size_t length)
{
    char *at = (char *)data;
    while (length > 0) {
        ssize_t received = recv(oob, at, length, 0);
        if (received < 0 && errno == EINTR)
            continue;
        if (received <= 0)
            fail("the other program is gone");
        at += received;
        length -= (size_t)received;
    }
}

/* Whether something has come that oob_receive() would give without waiting. */
static inline int oob_has_news(int oob)
{
    struct pollfd polled;
    polled.fd = oob;
    polled.events = POLLIN;
    polled.revents = 0;
    return poll(&polled, 1, 0) == 1;
}

static inline int oob_prepare(int oob)
{
    int on = 1;
    setsockopt(oob, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return oob;
}

/* A listener for IPv6 and IPv4, or for IPv4 where there is no IPv6. */
static inline int oob_listen(uint16_t port)
{
    struct sockaddr_in6 both;
    struct sockaddr_in only_v4;
    int on = 1, off = 0, listener = socket(AF_INET6, SOCK_STREAM, 0);
    memset(&both, 0, sizeof(both));
    both.sin6_family = AF_INET6;
    both.sin6_port = htons(port);
    memset(&only_v4, 0, sizeof(only_v4));
    only_v4.sin_family = AF_INET;
    only_v4.sin_port = htons(port);
    if (listener >= 0) {
        setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
        setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        if (bind(listener, (struct sockaddr *)&both, sizeof(both)) == 0)
            return listener;
        if (errno != EADDRNOTAVAIL)
            fail("cannot listen on port %u: %s", (unsigned)port, strerror(errno));
        close(listener);
    }
    listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(listener, (struct sockaddr *)&only_v4, sizeof(only_v4)))
        fail("cannot listen on port %u: %s", (unsigned)port, strerror(errno));
    return listener;
}

/* Waits for the other program. Port 0 takes any; which, is printed. */
static inline int oob_accept(uint16_t port)
{
    struct sockaddr_in6 address;
    socklen_t length = sizeof(address);
    int oob, listener = oob_listen(port);
    if (listen(listener, 1) || getsockname(listener, (struct sockaddr *)&address, &length))
        fail("cannot listen: %s", strerror(errno));
    /* The port is at the same place in an address of either family. */
    printf("listening on port %u\n", (unsigned)ntohs(address.sin6_port));
    fflush(stdout);
    oob = accept(listener, NULL, NULL);
    if (oob < 0)
        fail("cannot accept: %s", strerror(errno));
    close(listener);
    return oob_prepare(oob);
}

/* Connects to the other program. */
static inline int oob_connect(const char *host, const char *port)
{
    struct addrinfo hints, *found, *each;
    int oob = -1;
    memset(&hints, 0, sizeof(hints));
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    if (getaddrinfo(host, port, &hints, &found))
        fail("no such host: %s", host);
    for (each = found; each && oob < 0; each = each->ai_next) {
        oob = socket(each->ai_family, each->ai_socktype, each->ai_protocol);
        if (oob >= 0 && connect(oob, each->ai_addr, each->ai_addrlen)) {
            close(oob);
            oob = -1;
        }
    }
    freeaddrinfo(found);
    if (oob < 0)
        fail("nobody listens at %s port %s: %s", host, port, strerror(errno));
    return oob_prepare(oob);
}

#endif
