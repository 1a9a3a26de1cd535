package org.flinkndb.client;

import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;

import org.flinkndb.config.NdbOptions;
import org.flinkndb.config.ServerAddress;

import java.util.List;

/** What failures of calls mean, and what a user can do about them. */
final class Failures {
    private static final Metadata.Key<String> CODE =
            Metadata.Key.of("flinkndb-error", Metadata.ASCII_STRING_MARSHALLER);

    /** Code of failures that the client itself finds: no server answers. */
    static final String UNAVAILABLE = "UNAVAILABLE";

    private Failures() {}

    /** The wire's code of a failed call without its prefix, or "". */
    static String code(Throwable failure) {
        Metadata trailers = Status.trailersFromThrowable(failure);
        String code = trailers == null ? null : trailers.get(CODE);
        return code == null ? "" : withoutPrefix(code);
    }

    static String withoutPrefix(String code) {
        return code.startsWith("ERROR_") ? code.substring("ERROR_".length()) : code;
    }

    /** Whether another try may succeed: the server or the way to it is not there now. */
    static boolean temporary(Throwable failure) {
        String named = code(failure);
        if (named.equals("STORE_UNAVAILABLE") || named.equals("SERVER_FULL")) {
            return true;
        }
        Status.Code code = Status.fromThrowable(failure).getCode();
        return named.isEmpty()
                && (code == Status.Code.UNAVAILABLE
                        || code == Status.Code.DEADLINE_EXCEEDED
                        || code == Status.Code.CANCELLED
                        || code == Status.Code.INTERNAL
                        || code == Status.Code.UNKNOWN);
    }

    static StateSessionException refused(ServerAddress address, Throwable failure) {
        String text =
                failure instanceof StatusRuntimeException
                        ? ((StatusRuntimeException) failure).getStatus().getDescription()
                        : failure.getMessage();
        return new StateSessionException(
                code(failure), "state server at " + address + ": " + text, failure);
    }

    static StateSessionException unreachable(
            List<ServerAddress> addresses, String forHowLong, Throwable last) {
        return new StateSessionException(
                UNAVAILABLE,
                "no state server answers at "
                        + addresses
                        + " ("
                        + NdbOptions.ADDRESS.key()
                        + ") since "
                        + forHowLong
                        + ": "
                        + rootText(last)
                        + ". Is `flinkndb serve` running, does it listen there, and do "
                        + NdbOptions.TLS.key()
                        + " and the server's TLS agree?",
                last);
    }

    private static String rootText(Throwable failure) {
        Throwable root = failure;
        while (root != null && root.getCause() != null) {
            root = root.getCause();
        }
        return root == null ? "no answer" : String.valueOf(root.getMessage());
    }
}
