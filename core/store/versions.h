/* versions.h - the versions of the libraries that the store is built on. */
#ifndef TL_VERSIONS_H
#define TL_VERSIONS_H

const char *tl_hdf5_version(void);   /* h5write.c */
const char *tl_sqlite_version(void); /* store.c */

#endif
