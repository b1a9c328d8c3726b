// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

/**
 * What a member did not get because it is slow.
 *
 * @param dropped messages that were dropped
 * @param conflated messages that newer ones with their key have replaced
 * @param kept messages that wait until the member receives
 */
public record SlowCounters(long dropped, long conflated, int kept) {
}
