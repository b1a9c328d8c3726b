import com.refinitiv.ema.access.EmaFactory;
import com.refinitiv.ema.access.FieldList;
import com.refinitiv.ema.access.GenericMsg;
import com.refinitiv.ema.access.Msg;
import com.refinitiv.ema.access.OmmException;
import com.refinitiv.ema.access.OmmProvider;
import com.refinitiv.ema.access.OmmProviderClient;
import com.refinitiv.ema.access.OmmProviderEvent;
import com.refinitiv.ema.access.OmmReal.MagnitudeType;
import com.refinitiv.ema.access.OmmState;
import com.refinitiv.ema.access.PostMsg;
import com.refinitiv.ema.access.RefreshMsg;
import com.refinitiv.ema.access.ReqMsg;
import com.refinitiv.ema.access.StatusMsg;
import com.refinitiv.ema.rdm.EmaRdm;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** An interactive provider with the library's default settings. Argument: its port. */
final class Provider implements OmmProviderClient {
    private final Map<Long, Boolean> open = new ConcurrentHashMap<>();

    public static void main(String[] words) throws InterruptedException {
        var client = new Provider();
        var provider = EmaFactory.createOmmProvider(EmaFactory.createOmmIProviderConfig().port(words[0]), client);
        System.out.println("listening");
        for (int cents = 4000; ; cents++) {
            Thread.sleep(100);
            client.publish(provider, cents);
        }
    }

    private void publish(OmmProvider provider, int cents) throws InterruptedException {
        for (var handle : open.keySet()) {
            while (open.containsKey(handle)) {
                try {
                    provider.submit(EmaFactory.createUpdateMsg().payload(bid(cents)), handle);
                    break;
                } catch (OmmException full) {
                    // The parts of a dictionary fill the buffers of a channel.
                    Thread.sleep(1);
                }
            }
        }
    }

    private static FieldList bid(int cents) {
        FieldList fields = EmaFactory.createFieldList();
        fields.add(EmaFactory.createFieldEntry().real(22, cents, MagnitudeType.EXPONENT_NEG_2));
        return fields;
    }

    private static RefreshMsg refresh(String text) {
        return EmaFactory.createRefreshMsg().solicited(true).complete(true)
            .state(OmmState.StreamState.OPEN, OmmState.DataState.OK, OmmState.StatusCode.NONE, text);
    }

    @Override
    public void onReqMsg(ReqMsg request, OmmProviderEvent event) {
        if (request.domainType() == EmaRdm.MMT_LOGIN) {
            var login = refresh("login accepted").domainType(EmaRdm.MMT_LOGIN).name(request.name());
            event.provider().submit(login.nameType(EmaRdm.USER_NAME).attrib(EmaFactory.createElementList()), event.handle());
        } else if (request.domainType() == EmaRdm.MMT_MARKET_PRICE) {
            FieldList fields = bid(3999);
            fields.add(EmaFactory.createFieldEntry().enumValue(15, 840));
            var image = refresh("image").name(request.name()).serviceName(request.serviceName());
            event.provider().submit(image.payload(fields), event.handle());
            open.put(event.handle(), true);
        }
    }

    @Override
    public void onClose(ReqMsg request, OmmProviderEvent event) {
        open.remove(event.handle());
    }

    @Override
    public void onReissue(ReqMsg request, OmmProviderEvent event) {}

    @Override
    public void onRefreshMsg(RefreshMsg message, OmmProviderEvent event) {}

    @Override
    public void onStatusMsg(StatusMsg message, OmmProviderEvent event) {}

    @Override
    public void onGenericMsg(GenericMsg message, OmmProviderEvent event) {}

    @Override
    public void onPostMsg(PostMsg message, OmmProviderEvent event) {}

    @Override
    public void onAllMsg(Msg message, OmmProviderEvent event) {}
}
