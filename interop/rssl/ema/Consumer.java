import com.refinitiv.ema.access.AckMsg;
import com.refinitiv.ema.access.Data;
import com.refinitiv.ema.access.DataType.DataTypes;
import com.refinitiv.ema.access.EmaFactory;
import com.refinitiv.ema.access.FieldEntry;
import com.refinitiv.ema.access.GenericMsg;
import com.refinitiv.ema.access.Msg;
import com.refinitiv.ema.access.OmmConsumerClient;
import com.refinitiv.ema.access.OmmConsumerEvent;
import com.refinitiv.ema.access.RefreshMsg;
import com.refinitiv.ema.access.StatusMsg;
import com.refinitiv.ema.access.UpdateMsg;
import com.refinitiv.ema.rdm.DataDictionary;
import com.refinitiv.ema.rdm.EmaRdm;

/** A consumer with the library's default settings, which gets its dictionaries by the channel. Arguments: HOST:PORT, service. */
final class Consumer implements OmmConsumerClient {
    private static final int VERBOSE = 15;
    private static final long BEGAN = System.nanoTime();

    public static void main(String[] words) throws InterruptedException {
        var consumer = EmaFactory.createOmmConsumer(EmaFactory.createOmmConsumerConfig().host(words[0]).username("user"));
        var client = new Consumer();
        consumer.registerClient(EmaFactory.createReqMsg().serviceName(words[1]).name("IBM.N"), client);
        var dictionary = EmaFactory.createReqMsg().domainType(EmaRdm.MMT_DICTIONARY).serviceName(words[1]).name("RWFFld");
        consumer.registerClient(dictionary.filter(VERBOSE), client, EmaFactory.createDataDictionary());
        Thread.sleep(60_000);
        consumer.uninitialize();
    }

    private static void print(String what) {
        System.out.printf("%d ms %s%n", (System.nanoTime() - BEGAN) / 1_000_000, what);
    }

    private static void show(String what, Msg message) {
        StringBuilder line = new StringBuilder(what);
        for (FieldEntry field : message.payload().fieldList()) {
            boolean named = field.code() != Data.DataCode.BLANK && field.loadType() == DataTypes.ENUM && field.hasEnumDisplay();
            line.append(' ').append(field.name()).append('=').append(named ? field.enumDisplay() : field.load().toString());
        }
        print(line.toString());
    }

    @Override
    public void onRefreshMsg(RefreshMsg message, OmmConsumerEvent event) {
        if (message.domainType() == EmaRdm.MMT_MARKET_PRICE) {
            show("image " + message.state().toString(), message);
        } else if (message.domainType() == EmaRdm.MMT_DICTIONARY) {
            var dictionary = (DataDictionary) event.closure();
            dictionary.decodeFieldDictionary(message.payload().series(), VERBOSE);
            if (message.complete()) {
                print("dictionary " + dictionary.entries().size());
            }
        }
    }

    @Override
    public void onUpdateMsg(UpdateMsg message, OmmConsumerEvent event) {
        show("update", message);
    }

    @Override
    public void onStatusMsg(StatusMsg message, OmmConsumerEvent event) {
        print("status " + (message.hasState() ? message.state().toString() : ""));
    }

    @Override
    public void onGenericMsg(GenericMsg message, OmmConsumerEvent event) {}

    @Override
    public void onAckMsg(AckMsg message, OmmConsumerEvent event) {}

    @Override
    public void onAllMsg(Msg message, OmmConsumerEvent event) {}
}
