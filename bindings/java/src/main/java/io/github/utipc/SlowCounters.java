// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

/**
 * The messages that a slow member has missed.
 *
 * @param dropped messages that were dropped
 * @param conflated messages that newer ones with the same key have replaced
 * @param kept messages that wait until the member receives
 */
public record SlowCounters(long dropped, long conflated, int kept) {
}
