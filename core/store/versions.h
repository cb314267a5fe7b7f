/* versions.h - declares the versions of HDF5 and SQLite, for the build information. */
#ifndef TL_VERSIONS_H
#define TL_VERSIONS_H

const char *tl_hdf5_version(void);   /* h5write.c */
const char *tl_sqlite_version(void); /* store.c */

#endif
