-- TPC-C's transactions as functions of PostgreSQL.
--
-- A call outside of a transaction is a transaction: what a function raises undoes all of it. The
-- functions are volatile, so each of their statements sees what a client's statement would see at
-- the same isolation level. SELECT .. INTO STRICT raises where the row is missing.

-- The customer in the middle of those of a last name.
CREATE OR REPLACE FUNCTION tpcc_customer(w integer, d integer, name text) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    named integer[] := ARRAY(
        SELECT c_id FROM customer WHERE c_w_id = w AND c_d_id = d AND c_last = name
        ORDER BY c_first, c_id);
BEGIN
    IF cardinality(named) = 0 THEN
        RAISE EXCEPTION 'tpcc: a row is missing';
    END IF;
    RETURN named[(cardinality(named) + 1) / 2];
END
$$;

CREATE OR REPLACE FUNCTION tpcc_new_order(
    w integer, d integer, c integer, moment bigint, lines_wanted integer, is_local integer,
    items integer[], suppliers integer[], quantities integer[],
    OUT w_tax integer, OUT c_discount integer, OUT c_last text, OUT c_credit text,
    OUT d_next_o_id integer, OUT d_tax integer, OUT listed text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    number integer;
    price bigint;
    name text;
    data text;
    quantity integer;
    said text;
BEGIN
    SELECT w_tax INTO STRICT w_tax FROM warehouse WHERE w_id = w;
    SELECT c_discount, c_last, c_credit INTO STRICT c_discount, c_last, c_credit FROM customer
    WHERE c_w_id = w AND c_d_id = d AND c_id = c;
    SELECT d_next_o_id, d_tax INTO STRICT number, d_tax FROM district
    WHERE d_w_id = w AND d_id = d FOR UPDATE;
    UPDATE district SET d_next_o_id = number + 1 WHERE d_w_id = w AND d_id = d;
    INSERT INTO orders
        (o_w_id, o_d_id, o_id, o_c_id, o_entry_d, o_carrier_id, o_ol_cnt, o_all_local)
    VALUES (w, d, number, c, moment, NULL, lines_wanted, is_local);
    INSERT INTO new_order (no_w_id, no_d_id, no_o_id) VALUES (w, d, number);
    d_next_o_id := number;
    listed := '';
    FOR place IN 1..lines_wanted LOOP
        SELECT i_price, i_name, i_data INTO price, name, data FROM item WHERE i_id = items[place];
        IF NOT FOUND THEN
            RAISE EXCEPTION 'tpcc: unused item';
        END IF;
        SELECT s_quantity,
            CASE d WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03
                WHEN 4 THEN s_dist_04 WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06
                WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08 WHEN 9 THEN s_dist_09
                ELSE s_dist_10 END,
            s_data
        INTO STRICT quantity, said, data FROM stock
        WHERE s_w_id = suppliers[place] AND s_i_id = items[place] FOR UPDATE;
        UPDATE stock SET
            s_quantity = CASE WHEN quantity >= quantities[place] + 10
                THEN quantity - quantities[place] ELSE quantity - quantities[place] + 91 END,
            s_ytd = s_ytd + quantities[place], s_order_cnt = s_order_cnt + 1,
            s_remote_cnt = s_remote_cnt + CASE WHEN suppliers[place] <> w THEN 1 ELSE 0 END
        WHERE s_w_id = suppliers[place] AND s_i_id = items[place];
        INSERT INTO order_line
            (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, ol_delivery_d,
            ol_quantity, ol_amount, ol_dist_info)
        VALUES (w, d, number, place, items[place], suppliers[place], NULL,
            quantities[place], price * quantities[place], said);
        listed := listed || name || ',' || price || ',' || quantity || ';';
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION tpcc_payment(
    w integer, d integer, of_w integer, of_d integer, c integer, name text,
    amount bigint, moment bigint,
    OUT w_name text, OUT w_street_1 text, OUT w_street_2 text, OUT w_city text, OUT w_state text,
    OUT w_zip text,
    OUT d_name text, OUT d_street_1 text, OUT d_street_2 text, OUT d_city text, OUT d_state text,
    OUT d_zip text,
    OUT c_id integer, OUT c_credit text, OUT c_first text, OUT c_middle text, OUT c_last text,
    OUT c_street_1 text, OUT c_street_2 text, OUT c_city text, OUT c_state text, OUT c_zip text,
    OUT c_phone text, OUT c_since bigint, OUT c_credit_lim bigint, OUT c_discount integer,
    OUT c_balance bigint, OUT past text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    UPDATE warehouse SET w_ytd = w_ytd + amount WHERE w_id = w;
    SELECT w_name, w_street_1, w_street_2, w_city, w_state, w_zip
    INTO STRICT w_name, w_street_1, w_street_2, w_city, w_state, w_zip
    FROM warehouse WHERE w_id = w;
    UPDATE district SET d_ytd = d_ytd + amount WHERE d_w_id = w AND d_id = d;
    SELECT d_name, d_street_1, d_street_2, d_city, d_state, d_zip
    INTO STRICT d_name, d_street_1, d_street_2, d_city, d_state, d_zip
    FROM district WHERE d_w_id = w AND d_id = d;
    IF c IS NULL THEN
        c := tpcc_customer(of_w, of_d, name);
    END IF;
    c_id := c;
    SELECT c_credit, c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip,
        c_phone, c_since, c_credit_lim, c_discount, c_balance
    INTO STRICT c_credit, c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip,
        c_phone, c_since, c_credit_lim, c_discount, c_balance
    FROM customer WHERE c_w_id = of_w AND c_d_id = of_d AND c_id = c FOR UPDATE;
    IF c_credit = 'BC' THEN
        SELECT c_data INTO STRICT past FROM customer
        WHERE c_w_id = of_w AND c_d_id = of_d AND c_id = c FOR UPDATE;
        past := left(concat_ws(' ', c, of_d, of_w, d, w, amount, past), 500);
        UPDATE customer SET c_balance = c_balance - amount, c_ytd_payment = c_ytd_payment + amount,
            c_payment_cnt = c_payment_cnt + 1, c_data = past
        WHERE c_w_id = of_w AND c_d_id = of_d AND c_id = c;
    ELSE
        UPDATE customer SET c_balance = c_balance - amount, c_ytd_payment = c_ytd_payment + amount,
            c_payment_cnt = c_payment_cnt + 1
        WHERE c_w_id = of_w AND c_d_id = of_d AND c_id = c;
    END IF;
    INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data)
    VALUES (c, of_d, of_w, d, w, moment, amount, w_name || '    ' || d_name);
END
$$;

CREATE OR REPLACE FUNCTION tpcc_order_status(
    w integer, d integer, c integer, name text,
    OUT c_id integer, OUT c_balance bigint, OUT c_first text, OUT c_middle text, OUT c_last text,
    OUT o_id integer, OUT o_entry_d bigint, OUT o_carrier_id integer, OUT listed text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    line record;
BEGIN
    IF c IS NULL THEN
        c := tpcc_customer(w, d, name);
    END IF;
    c_id := c;
    SELECT c_balance, c_first, c_middle, c_last INTO STRICT c_balance, c_first, c_middle, c_last
    FROM customer WHERE c_w_id = w AND c_d_id = d AND c_id = c;
    SELECT o_id, o_entry_d, o_carrier_id INTO STRICT o_id, o_entry_d, o_carrier_id FROM orders
    WHERE o_w_id = w AND o_d_id = d AND o_c_id = c ORDER BY o_id DESC LIMIT 1;
    listed := '';
    FOR line IN
        SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line
        WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = o_id
    LOOP
        listed := listed || line.ol_i_id || ',' || line.ol_supply_w_id || ',' || line.ol_quantity
            || ',' || line.ol_amount || ',' || coalesce(line.ol_delivery_d::text, '') || ';';
    END LOOP;
    IF listed = '' THEN
        RAISE EXCEPTION 'tpcc: a row is missing';
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION tpcc_delivery(
    w integer, carrier integer, moment bigint, OUT delivered text)
LANGUAGE plpgsql AS $$
DECLARE
    number integer;
    c integer;
    amount bigint;
BEGIN
    delivered := '';
    FOR d IN 1..10 LOOP
        SELECT no_o_id INTO number FROM new_order WHERE no_w_id = w AND no_d_id = d
        ORDER BY no_o_id LIMIT 1 FOR UPDATE;
        CONTINUE WHEN NOT FOUND;
        DELETE FROM new_order WHERE no_w_id = w AND no_d_id = d AND no_o_id = number;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'tpcc: a row is missing';
        END IF;
        SELECT o_c_id INTO STRICT c FROM orders
        WHERE o_w_id = w AND o_d_id = d AND o_id = number FOR UPDATE;
        UPDATE orders SET o_carrier_id = carrier
        WHERE o_w_id = w AND o_d_id = d AND o_id = number;
        UPDATE order_line SET ol_delivery_d = moment
        WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = number;
        SELECT SUM(ol_amount) INTO amount FROM order_line
        WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = number;
        IF amount IS NULL THEN
            RAISE EXCEPTION 'tpcc: a row is missing';
        END IF;
        UPDATE customer SET c_balance = c_balance + amount, c_delivery_cnt = c_delivery_cnt + 1
        WHERE c_w_id = w AND c_d_id = d AND c_id = c;
        delivered := delivered || d || ',' || number || ';';
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION tpcc_stock_level(
    w integer, d integer, threshold integer, OUT low bigint)
LANGUAGE plpgsql AS $$
DECLARE
    number integer;
BEGIN
    SELECT d_next_o_id INTO STRICT number FROM district WHERE d_w_id = w AND d_id = d;
    SELECT COUNT(DISTINCT s_i_id) INTO low FROM order_line, stock
    WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id >= number - 20 AND ol_o_id < number
        AND s_w_id = w AND s_i_id = ol_i_id AND s_quantity < threshold;
END
$$;
