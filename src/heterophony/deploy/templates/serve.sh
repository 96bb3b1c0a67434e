#!/bin/sh
# Runs the federation to its end. It goes on from its last snapshot, however often it is stopped.
umask 077
cd "$$(dirname "$$0")" && OMP_NUM_THREADS=1 exec heterophony deploy serve .
