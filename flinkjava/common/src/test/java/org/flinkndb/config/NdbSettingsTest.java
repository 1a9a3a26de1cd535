package org.flinkndb.config;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import org.apache.flink.configuration.Configuration;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Wrong configuration is refused with the key, what was found, and what is allowed. */
class NdbSettingsTest {
    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "state.backend.ndb.address|somewhere|unix:///",
                "state.backend.ndb.address|host:port|port",
                "state.backend.ndb.address|host:99999|port",
                "state.backend.ndb.address|unix://relative|unix:///",
                "state.backend.ndb.recovery|quick|LAZY",
                "state.backend.ndb.cache.size|much|",
                "state.backend.ndb.cache.memory-fraction|1.5|0.01 to 0.9",
                "state.backend.ndb.batch.max-rows|0|1 to 65536",
                "state.backend.ndb.batch.max-bytes|1b|1024",
                "state.backend.ndb.write.max-dirty-bytes|1b|1024",
                "state.backend.ndb.write.max-unacknowledged-bytes|1b|1024",
                "state.backend.ndb.read.max-spin|1 s|0 to PT0.1S",
                "state.backend.ndb.connect-timeout|0 s|longer than zero",
                "state.backend.ndb.reconnect-timeout|soon|",
                "state.backend.ndb.session-lease|1 s|state.backend.ndb.reconnect-timeout",
                "state.backend.ndb.tls.enabled|perhaps|",
                "state.backend.ndb.tls.cert|/no/such/file|state.backend.ndb.tls",
                "state.backend.ndb.handle-address|somewhere|unix:///",
            })
    void refusesAndExplains(String key, String value, String allowed) {
        Configuration configuration = new Configuration();
        configuration.setString(key, value);
        assertThatThrownBy(() -> NdbSettings.fromConfig(configuration))
                .satisfies(
                        e -> {
                            String all = messages(e);
                            assertThat(all).contains(key);
                            if (allowed != null) {
                                assertThat(all).contains(allowed);
                            }
                        });
    }

    private static String messages(Throwable e) {
        StringBuilder all = new StringBuilder();
        for (Throwable cause = e; cause != null; cause = cause.getCause()) {
            all.append(cause.getMessage()).append('\n');
        }
        return all.toString();
    }

    @Test
    void readsTheWaitAsTheReadmeWritesIt() {
        Configuration configuration = new Configuration();
        configuration.setString("state.backend.ndb.read.max-spin", "400 micro");
        assertThat(NdbSettings.fromConfig(configuration).maxSpin())
                .isEqualTo(NdbOptions.MAX_SPIN.defaultValue());
    }

    @Test
    void readsAListOfAddresses() {
        Configuration configuration = new Configuration();
        configuration.setString("state.backend.ndb.address", "unix:///tmp/a; db.example:7480 ");
        assertThat(NdbSettings.fromConfig(configuration).addresses()).hasSize(2);
    }

    @Test
    void theDefaultsAreValid() {
        assertThat(NdbSettings.fromConfig(new Configuration()).addresses()).hasSize(1);
    }
}
