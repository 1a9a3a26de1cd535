package org.flinkndb.config;

import org.apache.flink.configuration.IllegalConfigurationException;
import org.apache.flink.configuration.ReadableConfig;

import java.io.Serializable;
import java.util.Objects;

/** How TCP connections are protected. Immutable. */
public final class TlsSettings implements Serializable {
    private static final long serialVersionUID = 1L;

    private final boolean enabled;
    private final String ca;
    private final String cert;
    private final String key;

    private TlsSettings(boolean enabled, String ca, String cert, String key) {
        this.enabled = enabled;
        this.ca = ca;
        this.cert = cert;
        this.key = key;
    }

    static TlsSettings fromConfig(ReadableConfig config) {
        String cert = config.getOptional(NdbOptions.TLS_CERT).orElse(null);
        String key = config.getOptional(NdbOptions.TLS_KEY).orElse(null);
        if ((cert == null) != (key == null)) {
            throw new IllegalConfigurationException(
                    NdbOptions.TLS_CERT.key()
                            + " and "
                            + NdbOptions.TLS_KEY.key()
                            + ": only one is set, a client certificate needs both");
        }
        return new TlsSettings(
                config.get(NdbOptions.TLS),
                config.getOptional(NdbOptions.TLS_CA).orElse(null),
                cert,
                key);
    }

    public boolean enabled() {
        return enabled;
    }

    /** PEM file, or null for Java's trust store. */
    public String ca() {
        return ca;
    }

    /** PEM file, or null for no client certificate. */
    public String cert() {
        return cert;
    }

    /** PEM file, or null. */
    public String key() {
        return key;
    }

    @Override
    public boolean equals(Object other) {
        if (!(other instanceof TlsSettings)) {
            return false;
        }
        TlsSettings that = (TlsSettings) other;
        return enabled == that.enabled
                && Objects.equals(ca, that.ca)
                && Objects.equals(cert, that.cert)
                && Objects.equals(key, that.key);
    }

    @Override
    public int hashCode() {
        return Objects.hash(enabled, ca, cert, key);
    }
}
