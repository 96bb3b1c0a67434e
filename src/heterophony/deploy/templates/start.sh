#!/bin/sh
# Takes part in the federation until it is stopped. It goes on from its own disk, however often that happens.
umask 077
cd "$$(dirname "$$0")" && OMP_NUM_THREADS=1 exec heterophony deploy node .
