/* status.h - the status codes of all functions that can fail. One table generates the codes,
** their names and their texts, so that these always agree. */
#ifndef TL_STATUS_H
#define TL_STATUS_H

#define TL_STATUS_MAP(X)                                            \
    X(OK, 0, "ok")                                                  \
    X(ENOMEM, -1, "out of memory")                                  \
    X(ESHAPE, -2, "shapes do not agree")                            \
    X(ETYPE, -3, "wrong element type")                              \
    X(EINVAL, -4, "invalid argument")                               \
    X(EBACKEND, -5, "backend failed or is not available")           \
    X(EDEVICE, -6, "not on this device")                            \
    X(EIO, -7, "input or output failed")                            \
    X(ENOSPC, -8, "no space left on the disk")                      \
    X(ECORRUPT, -9, "file is damaged or not of the expected kind")  \
    X(ENOTFOUND, -10, "not found")                                  \
    X(ELOCKED, -11, "in use by another process")

typedef enum tl_status {
#define X(name, value, text) TL_##name = (value),
    TL_STATUS_MAP(X)
#undef X
} tl_status;

#endif
